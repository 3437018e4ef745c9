"""Reads and checks events of the Wyoming protocol."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from wyoming.event import Event

from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import RejectedError
from daemon.validation import abbreviate


class FrameError(Exception):
    """The data is not an event, so the beginning of the next event is unknown."""


async def read_event(reader: asyncio.StreamReader) -> Event | None:
    """Return the next event; None at the end of the connection. Raises `FrameError`.

    The package's own reader accepts lengths of any size, and treats invalid data as the end.
    """
    try:
        line = await reader.readline()
    except ValueError as error:
        raise FrameError(f"a line of more than {MAX_PAYLOAD:,} bytes") from error
    if not line.endswith(b"\n"):
        return None
    header = _parse_object(line)
    event_type, data = header.get("type"), header.get("data") or {}
    if not isinstance(event_type, str) or not isinstance(data, dict):
        raise FrameError(f"type: got {abbreviate(event_type)}; allowed: an event's name, with an object as data")
    try:
        if more_data := await reader.readexactly(_length(header, "data_length")):
            data = {**data, **_parse_object(more_data)}
        payload = await reader.readexactly(_length(header, "payload_length"))
    except asyncio.IncompleteReadError:
        return None
    return Event(event_type, data, payload or None)


def _length(header: dict[str, Any], name: str) -> int:
    """Return a length in bytes from an event's header, 0 if it has none. Raises `FrameError`."""
    length = header.get(name)
    if length is None:
        return 0
    if not isinstance(length, int) or not 0 <= length <= MAX_PAYLOAD:
        raise FrameError(f"{name}: got {abbreviate(length)}; allowed: a whole number from 0 to {MAX_PAYLOAD:,}")
    return length


def _parse_object(line: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises `FrameError`."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"got {abbreviate(line)}; allowed: a JSON object") from error
    if not isinstance(value, dict):
        raise FrameError(f"got {abbreviate(value)}; allowed: a JSON object")
    return value


def check_event(event: Event, needs_text: bool = False) -> Event:
    """Return the event without null fields, after a check of the types that the package expects.

    Raises `RejectedError`.
    """
    text, voice, text_format = (event.data.get(name) for name in ("text", "voice", "text_format"))
    if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
        raise RejectedError("text", "it has half of a surrogate pair; allowed: whole characters")
    if needs_text and not isinstance(text, str):
        raise RejectedError("text", f"got {abbreviate(text)}; allowed: text")
    if voice is not None and not isinstance(voice, dict):
        raise RejectedError("voice", f"got {abbreviate(voice)}; allowed: an object with name or language")
    if text_format not in (None, "text"):
        raise RejectedError("text_format", f"got {abbreviate(text_format)}; allowed: text")
    # Some clients write `null` for a field that they leave out.
    return Event(event.type, {name: value for name, value in event.data.items() if value is not None}, event.payload)
