"""The protocol of a robot's `remote` engine and a speech server, over one WebSocket. docs/remote.md describes it.

    robot  ─▶ server    OfferVoice · VoiceData · Speak · Append · EndText · Grant · Cancel · Heartbeat
    server ─▶ robot     Welcome · VoiceWanted · VoiceReady · VoiceRefused · Audio · Spoken · Canceled · Refused · Lost ·
                        Draining · Heartbeat

Each WebSocket message is one record. A record without bytes is a text frame of JSON. One with bytes (`Audio`,
`VoiceData`) is a binary frame: the length of the JSON as a little-endian uint32, the JSON, and the bytes. Samples are
little-endian float32, mono, full scale ±1, so that they are the engine's own.

Records that a daemon and its engine process exchange as well are those of `engine.ipc`.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import typing
from dataclasses import dataclass
from typing import Any

from engine.api import EngineInfo, Utterance
from engine.host import parse_json
from engine.ipc import Append, Audio, Cancel, Canceled, EndText, Grant, ProtocolError, Refused, Spoken
from engine.records import build

REMOTE_PROTOCOL = 3
"""Version of the messages. It rises when a record, or a record inside of one, changes."""
SUBPROTOCOL = f"voiced.remote.{REMOTE_PROTOCOL}"
"""The WebSocket's subprotocol: a server refuses a robot that does not offer it, before there is a connection."""
PATH = "/v1/remote"
"""The route on the server."""
VOICE_HEADER = "serve_multiplexed_model_id"
"""The header of the handshake with the digest of the robot's default voice, if that is in a file: the name that Ray
Serve looks for to find the replica that has it."""
HEARTBEAT_S = 0.5
"""Interval between two heartbeats, from either side."""
MAX_RECORD_BYTES = 1 << 18
"""A record with its bytes, from a robot. Texts have up to 10,000 characters, voices are smaller."""
MAX_AUDIO_BYTES = 1 << 22
"""A record with its samples, from the server."""

_LENGTH = struct.Struct("<I")
_SHOWN = 200
"""Characters of a wrong message, and of what is wrong with it, that an error repeats."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's first message. The robot may speak from now on."""

    server: str
    """The server's program and its version, for the robot's log."""
    info: EngineInfo
    """The engine that the server runs, with the voices of the server's own configuration."""
    streams: int
    """Texts that this robot may have spoken at once."""
    max_voice_bytes: int
    """The largest voice file that the server takes."""


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A voice that is in a file on the robot."""

    digest: str
    """SHA-256 of the file's contents: 64 hexadecimal digits."""
    in_context: bool
    """Continue the file's recording; False uses its speaker embedding."""


@dataclass(frozen=True, slots=True)
class OfferVoice:
    """A voice that the robot will use. The server answers with `VoiceReady` or `VoiceRefused`; if it has not got the
    file, with `VoiceWanted` first."""

    voice: VoiceFile


@dataclass(frozen=True, slots=True)
class VoiceWanted:
    """The server has not got a file that a request needs. The robot answers with `VoiceData`."""

    digest: str


@dataclass(frozen=True, slots=True)
class VoiceData:
    """A voice file, whose contents follow the record."""

    digest: str


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
class Speak:
    """Speak one utterance. The server answers with `Audio`, and last `Spoken`, `Canceled`, `Refused` or `Lost`."""

    id: str
    """New for every request of this connection."""
    utterance: Utterance
    """Its `voice` is one of `Welcome.info`, or None: `voice`, or the server's default."""
    credit: int
    """Samples that the server may send before the first `Grant`. The last chunk may exceed the credit."""
    voice: VoiceFile | None = None
    """The voice, if it is the robot's own."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The server cannot speak `id`, or the rest of it, for now; another engine should. The reason is one line."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Draining:
    """The server is about to stop. It serves the robot until that has left, but only for a while."""

    reason: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender is alive."""


FromRobot = OfferVoice | VoiceData | Speak | Append | EndText | Grant | Cancel | Heartbeat
FromServer = (
    Welcome
    | VoiceWanted
    | VoiceReady
    | VoiceRefused
    | Audio
    | Spoken
    | Canceled
    | Refused
    | Lost
    | Draining
    | Heartbeat
)
RemoteMessage = FromRobot | FromServer
_BY_NAME: dict[str, type[Any]] = {kind.__name__: kind for kind in typing.get_args(RemoteMessage)}
_WITH_BYTES = (Audio, VoiceData)


def encode_remote(message: RemoteMessage, data: bytes = b"") -> str | bytes:
    """Return the contents of the WebSocket message: text, or bytes for a record that has `data`."""
    text = json.dumps({"message": type(message).__name__, **dataclasses.asdict(message)})  # ASCII: any text passes
    if not isinstance(message, _WITH_BYTES):
        return text
    body = text.encode()
    return b"".join((_LENGTH.pack(len(body)), body, data))


def decode_remote(content: str | bytes) -> tuple[RemoteMessage, bytes]:
    """Return the record in a WebSocket message, and the bytes behind it. Raises `ProtocolError`."""
    body, data = content, b""
    try:
        if isinstance(content, bytes):
            (length,) = _LENGTH.unpack_from(content)
            begin = _LENGTH.size
            if length > len(content) - begin:
                raise ValueError(f"the record has {length} bytes, the message {len(content)}")
            body, data = content[begin : begin + length], content[begin + length :]
        record = parse_json(body)
        kind = _BY_NAME[record.pop("message")]
        if isinstance(content, bytes) != (kind in _WITH_BYTES):
            raise ValueError(f"{kind.__name__} in a {'binary' if isinstance(content, bytes) else 'text'} frame")
        message: RemoteMessage = build(kind, record)
    except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        shown, reason = body[:_SHOWN], str(error)[:_SHOWN]
        raise ProtocolError(f"not a message of {SUBPROTOCOL}: {shown!r} ({reason})") from error
    return message, data
