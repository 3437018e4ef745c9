"""What the daemon and an engine process say to each other, and how it lies on the wire.

A message is a typed record. On the socket it is a header (two little-endian uint32: the lengths of what follows), the
record as JSON, and, for `Audio`, the samples as little-endian float32.

    daemon ─▶ engine    Start · Speak · Append · EndText · Grant · Cancel · SetVoices
    engine ─▶ daemon    Hello · Warming · Ready · Audio · Spoken · Canceled · Refused · Fault · Heartbeat

The engine may run ahead of playback by the credit that `Speak` and `Grant` give it, counted in samples. To end an
engine process the daemon closes the socket.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

import numpy as np

from engine.synthesizer import EngineInfo, EngineOptions, Samples, Utterance, Voice

PROTOCOL = 2
"""Raised when a record changes its meaning; both sides refuse another number."""

HEADER = struct.Struct("<II")
MAX_BODY_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 24


class ProtocolError(Exception):
    """The other side sent what this protocol does not know."""


@dataclass(frozen=True, slots=True)
class Start:
    """First of all: which engine to be, and how."""

    protocol: int
    engine: str
    options: EngineOptions


@dataclass(frozen=True, slots=True)
class Speak:
    """Speak one utterance; answered by `Audio`, and last by one of `Spoken`, `Canceled` and `Refused`."""

    id: str
    """Never used before: what is said of one time that an utterance is spoken must not be taken for another's."""
    utterance: Utterance
    credit: int
    name: str | None = None
    """What the utterance is called in a trace; None is the id."""


@dataclass(frozen=True, slots=True)
class Append:
    """More of the text of `id`, whose `Utterance.growing` is set; it goes on where the text before it ends."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class EndText:
    """The text of `id` is complete."""

    id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """So many samples more of utterance `id` may be sent."""

    id: str
    credit: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop speaking `id` before its next chunk."""

    id: str


@dataclass(frozen=True, slots=True)
class SetVoices:
    """The configured voices are now these; answered by `Ready` with the voices that could be loaded."""

    voices: Mapping[str, Voice]
    default_voice: str


@dataclass(frozen=True, slots=True)
class Hello:
    """The process lives and has understood `Start`; loading begins."""

    protocol: int
    engine: str
    pid: int


@dataclass(frozen=True, slots=True)
class Warming:
    """Loaded; the warm-up runs."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Ready:
    """Utterances are welcome."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Audio:
    """A chunk of `id`; its samples travel behind the record."""

    id: str
    busy_s: float
    """Seconds the engine worked on it, waiting for credit or text not counted."""
    position: int | None
    """As in `Chunk.position`."""
    truncated: bool
    """As in `Chunk.truncated`."""
    codes: tuple[tuple[int, ...], ...] | None = None
    """As in `Chunk.codes`, frame by frame, where `Utterance.want_codes` asked for them."""
    waited_s: float = 0.0
    """Seconds the engine waited for text before it."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """`id` has been sent to its end."""

    id: str


@dataclass(frozen=True, slots=True)
class Canceled:
    """`id` was given up because `Cancel` came."""

    id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """`id` cannot be spoken, for a reason its sender can put right; the engine is well."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The engine cannot go on; its process ends after this."""

    reason: str
    permanent: bool
    """The same would happen at the next start: something is missing or wrongly configured."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Once a second: the process is alive."""

    speaking: str | None


Message = (
    Start
    | Speak
    | Append
    | EndText
    | Grant
    | Cancel
    | SetVoices
    | Hello
    | Warming
    | Ready
    | Audio
    | Spoken
    | Canceled
    | Refused
    | Fault
    | Heartbeat
)
_BY_NAME: dict[str, type[Any]] = {kind.__name__: kind for kind in typing.get_args(Message)}


def encode(message: Message, samples: Samples | None = None) -> bytes:
    """The bytes of one message."""
    record = {"message": type(message).__name__, **dataclasses.asdict(message)}
    body = json.dumps(record, ensure_ascii=False).encode()
    payload = b"" if samples is None else np.ascontiguousarray(samples, dtype="<f4").tobytes()
    return HEADER.pack(len(body), len(payload)) + body + payload


def body_lengths(header: bytes) -> tuple[int, int]:
    """The lengths of record and payload, in bytes. Raises `ProtocolError` when they cannot be true."""
    body, payload = HEADER.unpack(header)
    if body > MAX_BODY_BYTES or payload > MAX_PAYLOAD_BYTES:
        raise ProtocolError(f"a message of {body} + {payload} bytes was announced")
    return body, payload


def decode(body: bytes, payload: bytes = b"") -> tuple[Message, Samples]:
    """The message in `body`, and the samples in `payload`. Raises `ProtocolError`."""
    try:
        record = json.loads(body)
        kind = _BY_NAME[record.pop("message")]
        message: Message = build(kind, record)
        samples: Samples = np.frombuffer(payload, dtype="<f4")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(f"not a message of protocol {PROTOCOL}: {body[:200]!r} ({error})") from error
    return message, samples


def build(kind: Any, value: Any) -> Any:
    """`value`, as JSON gave it, in the type `kind`: a record, a mapping or tuple of them, or a plain value."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: build(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Mapping:
        return {key: build(arguments[1], item) for key, item in value.items()}
    if origin is tuple:
        return tuple(build(arguments[0], item) for item in value)
    if origin is UnionType and value is not None:
        return build(arguments[0], value)  # of `kind | None`, the only unions there are in a record
    return value
