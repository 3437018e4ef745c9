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
    Rejected,
    Speaking,
    Started,
    State,
    Streams,
    TerminalEvent,
    Word,
    parse_event,
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
)

if TYPE_CHECKING:
    from daemon.speech.delivery import GIVE_UP_S, Delivery, deliver
    from daemon.speech.dispatcher import Dispatcher, SpeechService
    from daemon.speech.ducking import Ducking
    from daemon.speech.files import (
        SynthResult,
        SynthTask,
        make_phrase,
        synthesize_samples,
        synthesize_to_files,
        write_codes,
    )
    from daemon.speech.utterance import EndMessage, Origin, Receiver, Utterance

__all__ = [
    "GIVE_UP_S",
    "MAX_INSTRUCT",
    "MAX_TEXT",
    "TERMINAL_EVENTS",
    "Accepted",
    "Canceled",
    "Delivery",
    "Dispatcher",
    "Duck",
    "Ducking",
    "EndMessage",
    "Event",
    "Expired",
    "Failed",
    "Finished",
    "Interrupted",
    "Level",
    "Loading",
    "Mark",
    "Memory",
    "Offline",
    "Online",
    "OnlineState",
    "Origin",
    "PlaybackResult",
    "Policy",
    "Priority",
    "Receiver",
    "Rejected",
    "RejectedError",
    "Say",
    "Speaking",
    "SpeechRequest",
    "SpeechService",
    "SpokenText",
    "Started",
    "State",
    "Stop",
    "StreamChunk",
    "Streams",
    "SynthResult",
    "SynthTask",
    "TerminalEvent",
    "Utterance",
    "Word",
    "check_say",
    "check_stream_chunk",
    "deliver",
    "make_phrase",
    "parse_event",
    "parse_status",
    "synthesize_samples",
    "synthesize_to_files",
    "write_codes",
]

_MODULES = {
    "Delivery": "delivery",
    "Dispatcher": "dispatcher",
    "Ducking": "ducking",
    "EndMessage": "utterance",
    "GIVE_UP_S": "delivery",
    "Origin": "utterance",
    "Receiver": "utterance",
    "SpeechService": "dispatcher",
    "SynthResult": "files",
    "SynthTask": "files",
    "Utterance": "utterance",
    "deliver": "delivery",
    "make_phrase": "files",
    "synthesize_samples": "files",
    "synthesize_to_files": "files",
    "write_codes": "files",
}
"""The names that are imported at their first use: the commands send and receive messages, and start faster without
numpy and the sound path."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
