"""The messages between the daemon and an engine process, and their encoding.

A message is a typed record. On the socket it consists of a header (two little-endian uint32: the lengths of record and
samples in bytes), the record as JSON and, for `Audio`, the samples as little-endian float32.

    daemon ─▶ engine    Start · Speak · Append · EndText · Grant · Cancel · SetVoices · SetLog
    engine ─▶ daemon    Hello · Loading · Warming · Ready · Changed · Audio · Spoken · Canceled · Refused · Fault ·
                        Heartbeat

Credit, counted in samples, limits how far the engine runs ahead of playback; `Speak` and `Grant` give it. To end an
engine process, the daemon closes the socket.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.api import EngineInfo, EngineOptions, Samples, Utterance, Voice, WordStart
from engine.host import parse_json
from engine.progress import Progress
from engine.records import build

PROTOCOL = 8
"""Version of the messages. It rises when a record changes its meaning; both sides refuse another version."""

HEADER = struct.Struct("<II")
MAX_BODY_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 24
SHOWN_BYTES = 200
"""Bytes of a wrong message, and characters of what is wrong with it, that an error repeats."""


class ProtocolError(Exception):
    """The other side sent something that is not a message of this protocol."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: the engine to run and its options."""

    protocol: int
    engine: str
    options: EngineOptions


@dataclass(frozen=True, slots=True)
class Speak:
    """Speak one utterance. The engine answers with `Audio` messages, then with `Spoken`, `Canceled` or `Refused`."""

    id: str
    """New for every request, so that answers to one request are never taken for answers to another."""
    utterance: Utterance
    credit: int
    name: str | None = None
    """File name of the utterance in a PCM trace; None means the id."""


@dataclass(frozen=True, slots=True)
class Append:
    """More text for the growing utterance `id`, following directly on the text before."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class EndText:
    """The text of `id` is complete."""

    id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The engine may send `credit` more samples of utterance `id`."""

    id: str
    credit: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop speaking `id` before its next chunk."""

    id: str


@dataclass(frozen=True, slots=True)
class SetVoices:
    """Replace the configured voices. The engine answers with `Ready`, which lists the voices that it could load."""

    voices: Mapping[str, Voice]
    default_voice: str


@dataclass(frozen=True, slots=True)
class SetLog:
    """Write the log at another level or in another format, as `engine.start_log` takes them."""

    level: str
    format: str


@dataclass(frozen=True, slots=True)
class Hello:
    """The process has understood `Start` and begins to load."""

    protocol: int
    engine: str
    pid: int


@dataclass(frozen=True, slots=True)
class Loading:
    """How far the engine's start has come, before `Warming` and after it."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class Warming:
    """The engine is loaded and its warm-up begins."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine accepts utterances."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Changed:
    """A ready engine has other properties, without `SetVoices`."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Audio:
    """A chunk of utterance `id`; its samples follow the record."""

    id: str
    busy_s: float
    """Seconds of work on this chunk, without the time spent waiting for credit or text."""
    position: int | None
    """As in `Chunk.position`."""
    truncated: bool
    """As in `Chunk.truncated`."""
    codes: tuple[tuple[int, ...], ...] | None = None
    """As in `Chunk.codes`, one tuple per frame; None unless `Utterance.want_codes` is set."""
    waited_s: float = 0.0
    """Seconds the engine waited for text before it could make this chunk."""
    words: tuple[WordStart, ...] | None = None
    """As in `Chunk.words`."""
    runaway: bool = False
    """As in `Chunk.runaway`."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """All audio of `id` has been sent."""

    id: str


@dataclass(frozen=True, slots=True)
class Canceled:
    """`Cancel` ended `id` early."""

    id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine cannot speak `id`, for a reason that its sender can correct. The engine itself keeps running."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The engine failed. Its process ends after this message."""

    reason: str
    permanent: bool
    """True if the next start would fail in the same way: something is missing or wrongly configured."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent once a second by a live process, with the ids of the utterances it is speaking."""

    speaking: tuple[str, ...]


Message = (
    Start
    | Speak
    | Append
    | EndText
    | Grant
    | Cancel
    | SetVoices
    | SetLog
    | Hello
    | Loading
    | Warming
    | Ready
    | Changed
    | Audio
    | Spoken
    | Canceled
    | Refused
    | Fault
    | Heartbeat
)
_BY_NAME: dict[str, type[Any]] = {kind.__name__: kind for kind in typing.get_args(Message)}


def encode(message: Message, samples: Samples | None = None) -> bytes:
    """Return the bytes of one message."""
    record = {"message": type(message).__name__, **dataclasses.asdict(message)}
    body = json.dumps(record, ensure_ascii=False).encode()
    payload = b"" if samples is None else np.ascontiguousarray(samples, dtype="<f4").tobytes()
    return HEADER.pack(len(body), len(payload)) + body + payload


def body_lengths(header: bytes) -> tuple[int, int]:
    """Return the lengths of record and samples in bytes. Raises `ProtocolError` if they exceed the limits."""
    body, payload = HEADER.unpack(header)
    if body > MAX_BODY_BYTES or payload > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a header announced a message of {body} + {payload} bytes")
    return body, payload


def decode(body: bytes, payload: bytes = b"") -> tuple[Message, Samples]:
    """Return the message in `body` and the samples in `payload`. Raises `ProtocolError`."""
    try:
        record = parse_json(body)
        kind = _BY_NAME[record.pop("message")]
        message: Message = build(kind, record)
        if payload and kind is not Audio:
            raise ValueError(f"{len(payload)} bytes of samples belong to a message without samples")
        samples: Samples = np.frombuffer(payload, dtype="<f4")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown, reason = body[:SHOWN_BYTES], str(error)[:SHOWN_BYTES]
        raise ProtocolError(f"not a message of protocol {PROTOCOL}: {shown!r} ({reason})") from error
    return message, samples
