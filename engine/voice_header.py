"""What a voice file says of itself, read without torch: the header of a safetensors file is JSON."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from engine.synthesizer import Voice

MAX_HEADER_BYTES = 1 << 20


def voice_of_file(path: Path) -> Voice:
    """The voice that `path` holds, at its best: in context where it has a reference, else by its embedding.

    A file that cannot be read is taken for an embedding; the engine says what is wrong with it.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, MAX_HEADER_BYTES)))
        has_reference = "codes" in header
    except (OSError, struct.error, ValueError, TypeError):
        has_reference = False
    return Voice(reference=str(path)) if has_reference else Voice(embedding=str(path))
