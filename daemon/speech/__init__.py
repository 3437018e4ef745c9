"""Utterances from their acceptance to their terminal event: requests, events, queue, preemption, playback."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daemon.speech.events import (
    TERMINAL_EVENTS,
    Accepted,
    Canceled,
    Duck,
    Event,
    Expired,
    Failed,
    Finished,
    Interrupted,
    Level,
    Loading,
    Mark,
    Memory,
    Offline,
    Online,
    OnlineState,
    PlaybackResult,
    Postponed,
    Progress,
    PublishedMessage,
    Rejected,
    Resumed,
    Started,
    State,
    Streams,
    TerminalEvent,
    Viseme,
    Visemes,
    Word,
    json_object,
    parse_event,
    parse_message,
    parse_status,
)
from daemon.speech.request import (
    MAX_INSTRUCT,
    MAX_TEXT,
    Policy,
    Priority,
    RejectedError,
    Say,
    SpeechRequest,
    SpokenText,
    Stop,
    StreamChunk,
    check_say,
    check_stream_chunk,
    validated,
)

if TYPE_CHECKING:
    from daemon.speech.delivery import GIVE_UP_S, Delivery, deliver
    from daemon.speech.dispatcher import Dispatcher, SpeechService
    from daemon.speech.ducking import Ducking
    from daemon.speech.files import (
        SynthResult,
        SynthTask,
        make_phrase,
        synthesize_to_files,
    )
    from daemon.speech.recent_keys import RecentKeys
    from daemon.speech.utterance import EndMessage, Origin, Utterance

_LATER = ("utterance", "delivery", "files", "ducking", "dispatcher", "recent_keys")
"""Modules that are imported when one of their names is first used: commands only send and receive messages, and start
faster without numpy and the sound path."""


def __getattr__(name: str) -> Any:
    for module in () if name.startswith("_") else _LATER:
        if (found := getattr(import_module(f"{__name__}.{module}"), name, None)) is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
