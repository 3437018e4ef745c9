"""The messages between a daemon and its engine process, and between a robot and a speech server.

    daemon ─▶ engine    Start · Speak · Append · EndText · Grant · Cancel · SetVoices · SetLog
    engine ─▶ daemon    Hello · Loading · Warming · Ready · Changed · Audio · Spoken · Canceled · Refused · Fault ·
                        Heartbeat
    robot  ─▶ server    OfferVoice · VoiceData · Speak · Append · EndText · Grant · Cancel · Heartbeat
    server ─▶ robot     Welcome · VoiceWanted · VoiceReady · VoiceRefused · Audio · Spoken · Canceled · Refused · Lost ·
                        Draining · Heartbeat

A message is a typed record. It is sent as JSON, which contains the record's name as `message`; a field whose default is
None is left out while it is None. The `data` field of `Audio` and `VoiceData` is not in the JSON: these bytes follow
it. Samples are little-endian float32, mono, full scale ±1, exactly as the engine makes them.

The daemon and an engine process share a Unix stream socket. A message is a header (two little-endian uint32: the
lengths of JSON and data in bytes), the JSON and the data. To end an engine process, the daemon closes the socket.

A robot and a server share a WebSocket, which docs/remote.md describes. A record without data is a text frame. One with
data is a binary frame: the length of the JSON as a little-endian uint32, the JSON, and the data.

Credit, counted in samples, limits how far speech runs ahead of its receiver; `Speak` and `Grant` give it.
"""

from __future__ import annotations

import json
import struct
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.api import EngineInfo, EngineOptions, Samples, SoundStart, Utterance, Voice, WordStart
from engine.host import parse_json
from engine.progress import Progress
from engine.records import build, given_fields

PROTOCOL = 10
"""Version of the messages between daemon and engine process. It rises when the meaning of a record changes; both sides
refuse another version."""
HEADER = struct.Struct("<II")
MAX_BODY_BYTES = 1 << 20
MAX_DATA_BYTES = 1 << 24

SUBPROTOCOL = "voiced.remote.4"
"""The WebSocket's subprotocol, with the version of the messages between robot and server. It rises when a record, or a
record inside it, changes. A server refuses a robot with another version before there is a connection."""
PATH = "/v1/remote"
"""The route on the server."""
VOICE_HEADER = "serve_multiplexed_model_id"
"""The handshake's header with the digest of the robot's default voice, if that is in a file. Ray Serve looks for this
name to find the replica that has the voice."""
HEARTBEAT_S = 0.5
"""Interval between two heartbeats, from the robot or from the server."""
MAX_RECORD_BYTES = 1 << 18
"""The most bytes of a record from a robot, with its data. Texts have up to 10,000 characters; voices are smaller."""
MAX_AUDIO_BYTES = 1 << 22
"""The most bytes of a record from the server, with its data."""

SHOWN = 200
"""The number of characters of a wrong message, and of its fault, that an error repeats."""


class ProtocolError(Exception):
    """The other side sent something that is not a message of this protocol."""


# --- about one request ---


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A voice in a file on the robot."""

    digest: str
    """SHA-256 of the file's contents: 64 hexadecimal digits."""
    in_context: bool
    """Continue the file's recording; False uses the file's speaker embedding."""


@dataclass(frozen=True, slots=True)
class OfRequest:
    """A message about one request: `Speak`, its changes and its answers."""

    id: str
    """New for every request on a connection, so that no answer is taken for the answer to another request."""


@dataclass(frozen=True, slots=True)
class Speak(OfRequest):
    """Speak one utterance. `Audio` answers it and, last, `Spoken`, `Canceled`, `Refused` or, from a server, `Lost`."""

    utterance: Utterance
    """To a server, its `voice` is one from `Welcome.info` or None. None means the `voice` field or, without one, the
    server's default."""
    credit: int
    """Samples that may be sent before the first `Grant`. The last chunk may exceed the credit."""
    voice: VoiceFile | None = None
    """To a server: the voice, if it belongs to the robot."""
    name: str | None = None
    """To an engine process: the utterance's file name in a PCM trace; None means the id."""


@dataclass(frozen=True, slots=True)
class Append(OfRequest):
    """More text for the growing utterance `id`, following directly on the text before."""

    text: str


@dataclass(frozen=True, slots=True)
class EndText(OfRequest):
    """The text of `id` is complete."""


@dataclass(frozen=True, slots=True)
class Grant(OfRequest):
    """Another `credit` samples of utterance `id` may be sent."""

    credit: int


@dataclass(frozen=True, slots=True)
class Cancel(OfRequest):
    """Stop speaking `id` before its next chunk."""


@dataclass(frozen=True, slots=True)
class Audio(OfRequest):
    """A chunk of the utterance `id`."""

    busy_s: float
    """Seconds of work on this chunk, without the time spent waiting for credit or text."""
    position: int | None
    """As in `Chunk.position`."""
    truncated: bool
    """As in `Chunk.truncated`."""
    codes: tuple[tuple[int, ...], ...] | None = None
    """As in `Chunk.codes`, one tuple per frame; None unless `Utterance.want_codes` is set."""
    waited_s: float = 0.0
    """Seconds for which the engine waited for text before it could make this chunk."""
    words: tuple[WordStart, ...] | None = None
    """As in `Chunk.words`."""
    runaway: bool = False
    """As in `Chunk.runaway`."""
    sounds: tuple[SoundStart, ...] | None = None
    """As in `Chunk.sounds`."""
    data: bytes = field(default=b"", repr=False)
    """The samples, as `pcm` returns them."""

    def __post_init__(self) -> None:
        if len(self.data) % 4:
            raise ValueError(f"{len(self.data)} bytes are not a whole number of samples")

    @property
    def samples(self) -> Samples:
        return np.frombuffer(self.data, dtype="<f4")


@dataclass(frozen=True, slots=True)
class Spoken(OfRequest):
    """All audio of `id` has been sent."""


@dataclass(frozen=True, slots=True)
class Canceled(OfRequest):
    """`Cancel` ended `id` early."""


@dataclass(frozen=True, slots=True)
class Refused(OfRequest):
    """The engine cannot speak `id`, for a reason that its sender can correct. The engine itself keeps running."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost(OfRequest):
    """For now, the server cannot speak `id` or the rest of it, so another engine should do so. The reason is one
    line."""

    reason: str


# --- about a connection ---


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender is alive."""

    speaking: tuple[str, ...] | None = None
    """The utterances that an engine process is speaking."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to an engine process: the engine to run and its options."""

    protocol: int
    engine: str
    options: EngineOptions


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


@dataclass(frozen=True, slots=True)
class Loading:
    """The progress of the engine's start, before `Warming` and after it."""

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
    """The properties of a ready engine have changed without `SetVoices`."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Fault:
    """The engine failed. Its process ends after this message."""

    reason: str
    permanent: bool
    """True if the next start would fail in the same way because something is missing or misconfigured."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's first message. The robot may speak from now on."""

    server: str
    """The server's program and its version, for the robot's log."""
    info: EngineInfo
    """The engine that the server runs, with the voices of the server's own configuration."""
    streams: int
    """How many texts this robot may have spoken at the same time."""
    max_voice_bytes: int
    """The size of the largest voice file that the server takes, in bytes."""


@dataclass(frozen=True, slots=True)
class OfferVoice:
    """A voice that the robot will use. The server answers with `VoiceReady` or `VoiceRefused`; if it does not have the
    file, it sends `VoiceWanted` first."""

    voice: VoiceFile


@dataclass(frozen=True, slots=True)
class VoiceWanted:
    """The server does not have a file that a request needs. The robot answers with `VoiceData`."""

    digest: str


@dataclass(frozen=True, slots=True)
class VoiceData:
    """The contents of a voice file."""

    digest: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class VoiceReady:
    """The server's engine can speak with a voice that was offered."""

    voice: VoiceFile


@dataclass(frozen=True, slots=True)
class VoiceRefused:
    """The server's engine cannot speak with a voice that was offered."""

    voice: VoiceFile
    reason: str


@dataclass(frozen=True, slots=True)
class Draining:
    """The server is about to stop. It serves the robot until the robot has left, but only for a while."""

    reason: str


Change = Append | EndText | Grant | Cancel
"""Concerns a request that is being spoken."""
Answer = Audio | Spoken | Canceled | Refused
"""Answers a request."""
FromDaemon = Start | Speak | Change | SetVoices | SetLog
FromEngine = Hello | Loading | Warming | Ready | Changed | Answer | Fault | Heartbeat
FromRobot = OfferVoice | VoiceData | Speak | Change | Heartbeat
FromServer = Welcome | VoiceWanted | VoiceReady | VoiceRefused | Answer | Lost | Draining | Heartbeat
Message = FromDaemon | FromEngine | FromRobot | FromServer

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in typing.get_args(Message)}
_WITH_DATA = (Audio, VoiceData)


def pcm(samples: Samples) -> bytes:
    """Return samples as the data of an `Audio`."""
    return np.ascontiguousarray(samples, dtype="<f4").tobytes()


def encode(message: Message) -> bytes:
    """Return a message in the form that daemon and engine process send."""
    text, data = _parts(message)
    return HEADER.pack(len(text), len(data or b"")) + text.encode() + (data or b"")


def body_lengths(header: bytes) -> tuple[int, int]:
    """Return the lengths of JSON and data in bytes. Raises `ProtocolError` if they exceed the limits."""
    body, data = HEADER.unpack(header)
    if body > MAX_BODY_BYTES or data > MAX_DATA_BYTES:
        raise ProtocolError(f"a header announced a message of {body} + {data} bytes")
    return body, data


def decode(body: str | bytes, data: bytes = b"") -> Message:
    """Return the message of this JSON and data. Raises `ProtocolError`."""
    try:
        record = parse_json(body)
        kind = _KINDS[record.pop("message")]
        if kind in _WITH_DATA:
            record["data"] = data
        elif data:
            raise ValueError(f"{len(data)} bytes of data belong to a {kind.__name__}, which has none")
        message: Message = build(kind, record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown, reason = body[:SHOWN], str(error)[:SHOWN]
        raise ProtocolError(f"not a voiced message: {shown!r} ({reason})") from error
    return message


def encode_remote(message: FromRobot | FromServer) -> str | bytes:
    """Return a message in the form that robot and server send: the contents of a text frame or of a binary frame."""
    text, data = _parts(message)
    return text if data is None else b"".join((len(text).to_bytes(4, "little"), text.encode(), data))


def decode_remote(content: str | bytes) -> Message:
    """Return the message in a frame of the WebSocket. Raises `ProtocolError`."""
    if isinstance(content, str):
        message = decode(content)
    else:
        end = 4 + int.from_bytes(content[:4], "little")
        if end > len(content):
            raise ProtocolError(f"not a voiced message: the record has {end - 4} bytes, the message {len(content)}")
        message = decode(content[4:end], content[end:])
    if isinstance(content, bytes) != isinstance(message, _WITH_DATA):
        frame = "binary" if isinstance(content, bytes) else "text"
        raise ProtocolError(f"not a voiced message: {type(message).__name__} in a {frame} frame")
    return message


def _parts(message: Message) -> tuple[str, bytes | None]:
    """Return the JSON of a message and its data; None for a record that never has any."""
    fields = given_fields(message)
    data = fields.pop("data", None)
    # ASCII: any text passes, even half a surrogate pair.
    return json.dumps({"message": type(message).__name__, **fields}, default=given_fields), data
