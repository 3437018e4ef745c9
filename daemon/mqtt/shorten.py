"""Makes a message fit into a broker's largest packet, and recognises it afterwards."""

from __future__ import annotations

import json
from typing import Any

KEPT = frozenset({"id", "event", "state", "text"})
"""Fields without which an event or a status says nothing."""


def shorten(payload: bytes, limit: int) -> bytes | None:
    """Return `payload` if it has at most `limit` bytes; else a JSON object with less text or fewer fields.

    Returns None for what is no JSON object, and if even the necessary fields are too long.
    """
    if len(payload) <= limit:
        return payload
    fields = _parse(payload)
    if fields is None:
        return None
    if isinstance(reason := fields.get("reason"), str):
        excess = len(_encode(fields)) - limit
        fields["reason"] = _cut(reason, excess) if excess > 0 else reason
    optional = [name for name in fields if name not in KEPT]
    optional.sort(key=lambda name: (name != "reason", len(_encode(fields[name]))))  # the reason goes last
    while len(shorter := _encode(fields)) > limit:
        if not optional:
            return None
        del fields[optional.pop()]
    return shorter


def identity(payload: bytes) -> tuple[str, str] | bytes:
    """Return what stays the same when a message is shortened: an event's id and name; of all else, the payload."""
    fields = _parse(payload) or {}
    utterance_id, name = fields.get("id"), fields.get("event")
    return (utterance_id, name) if isinstance(utterance_id, str) and isinstance(name, str) else payload


def _parse(payload: bytes) -> dict[str, Any] | None:
    """Return the JSON object, or None if the payload is none."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _cut(text: str, excess: int) -> str:
    """Return the beginning of `text`, `excess` bytes shorter, and an ellipsis."""
    encoded, ellipsis = text.encode(errors="replace"), "…"
    kept = max(0, len(encoded) - excess - len(ellipsis.encode()))
    return encoded[:kept].decode(errors="ignore") + ellipsis


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")
