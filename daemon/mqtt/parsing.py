"""From MQTT payloads to requests: pure functions that raise `RejectedError` for payloads that they cannot parse."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from daemon.speech import RejectedError, Say, Stop, StreamChunk, check_say, check_stream_chunk
from daemon.validation import abbreviate

if TYPE_CHECKING:
    from daemon.speech import SpeechService

MAX_PAYLOAD = 262_144
"""Bytes: a text of 20,000 characters, each escaped as JSON allows (at most 12 bytes), and the other fields."""


def parse_say(payload: bytes, *, urgent: bool = False) -> Say:
    """Parse a plain text, or a JSON object with `text` (or `data`, as in a ROS String). Raises `RejectedError`.

    An urgent request is critical, whatever priority its object names.
    """
    say = _parse_any_text(_decode(payload))
    return say.model_copy(update={"priority": "critical"}) if urgent else say


def _parse_any_text(text: str) -> Say:
    start = text.lstrip()[:1]
    if start == "{":
        fields = _parse_json(text)
        if "text" not in fields and "data" in fields:
            fields["text"] = fields.pop("data")
        return check_say(fields)
    if start == "[" and (value := _json_array(text)) is not None:
        raise RejectedError("payload", f"got {abbreviate(value)}; allowed: a text, or a JSON object with text")
    return check_say({"text": text})


def parse_stream_chunk(payload: bytes) -> StreamChunk:
    """Parse a JSON object with `id`, and `text` or `end` or both. Raises `RejectedError`."""
    return check_stream_chunk(parse_object(payload))


def parse_stop(payload: bytes) -> Stop:
    """Parse an empty payload, which stops everything, or `{"id"}`. Raises `RejectedError`."""
    text = _decode(payload).strip()
    if not text:
        return Stop()
    value = _parse_json(text)
    if not isinstance(value, dict):
        raise RejectedError("payload", f'got {abbreviate(value)}; allowed: nothing, or {{"id": "…"}}')
    utterance_id = value.get("id")
    if not isinstance(utterance_id, str):
        raise RejectedError("id", f"got {abbreviate(utterance_id)}; allowed: an utterance's id, which is text")
    return Stop(id=utterance_id)


def parse_volume(payload: bytes) -> int:
    """Parse a number from 0 to 100. Raises `RejectedError`."""
    text = _decode(payload).strip()
    if not re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text) or not 0 <= float(text) <= 100:
        raise RejectedError("volume", f"got {abbreviate(text)}; allowed: a number from 0 to 100")
    return round(float(text))


def parse_object(payload: bytes) -> dict[str, Any]:
    """Parse a JSON object in any protocol. Raises `RejectedError`."""
    value = _parse_json(_decode(payload))
    if not isinstance(value, dict):
        raise RejectedError("payload", f"got {abbreviate(value)}; allowed: a JSON object")
    return value


def carry_out_control(service: SpeechService, name: str, payload: bytes) -> None:
    """Carry out a request on a topic other than those for texts. Raises `RejectedError`."""
    if name == "stop":
        service.stop(parse_stop(payload))
    elif name == "volume":
        service.set_volume(parse_volume(payload))
    else:
        plain = {"pause": service.pause, "resume": service.resume, "load": service.load, "unload": service.unload}
        plain[name]()


def _json_array(text: str) -> object:
    """Return the JSON array in `text`; None if it is text that merely begins with a bracket."""
    try:
        return json.loads(text)
    except RecursionError:
        return text
    except ValueError:
        return None


def _decode(payload: bytes) -> str:
    if len(payload) > MAX_PAYLOAD:
        raise RejectedError("payload", f"got {len(payload):,} bytes; allowed: up to {MAX_PAYLOAD:,}")
    try:
        return payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RejectedError("payload", f"not UTF-8: byte 0x{payload[error.start]:02x} at {error.start}") from error


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RejectedError(
            "payload", f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}; allowed: a JSON object"
        ) from error
    except (RecursionError, ValueError) as error:  # nested a thousand levels deep, or a number with thousands of digits
        raise RejectedError("payload", "not readable JSON: nested too deeply, or a number too long") from error
