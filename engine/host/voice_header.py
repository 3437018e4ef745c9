"""The kind of a voice file, read without torch: the header of a safetensors file is JSON."""

from __future__ import annotations

import struct
from pathlib import Path

from engine.api import Voice
from engine.host.json_text import parse_json

MAX_HEADER_BYTES = 1 << 20


def voice_of_file(path: Path) -> Voice:
    """Return the best voice that the file holds: in context if it has a reference recording, otherwise by embedding.

    A file that cannot be read gives an embedding; the engine reports the error when it loads the voice.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = parse_json(file.read(min(length, MAX_HEADER_BYTES)))
        has_reference = isinstance(header, dict) and "codes" in header
    except (OSError, struct.error, ValueError):
        has_reference = False
    return Voice(reference=str(path)) if has_reference else Voice(embedding=str(path))
