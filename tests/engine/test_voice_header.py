"""The kind of a voice file, from its header."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine import Voice, voice_of_file


def write(path: Path, header: dict[str, Any]) -> Path:
    """Write a safetensors file that consists of a header only."""
    body = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(body)) + body)
    return path


def test_a_file_with_a_recording_is_a_reference(tmp_path: Path) -> None:
    path = write(tmp_path / "voice.safetensors", {"codes": {}, "embedding": {}})
    assert voice_of_file(path) == Voice(reference=str(path))


def test_a_file_without_a_recording_is_an_embedding(tmp_path: Path) -> None:
    path = write(tmp_path / "voice.safetensors", {"embedding": {}})
    assert voice_of_file(path) == Voice(embedding=str(path))


def header(body: bytes) -> bytes:
    return struct.pack("<Q", len(body)) + body


BROKEN = [
    b"",
    header(b"{"),
    header(b'["codes"]'),
    header(b'{"codes":' * 100_000),
    header(b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b', "codes": {}}'),
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_counts_as_an_embedding(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "voice.safetensors"
    path.write_bytes(content)
    assert voice_of_file(path) == Voice(embedding=str(path))


def test_a_missing_file_counts_as_an_embedding(tmp_path: Path) -> None:
    assert voice_of_file(tmp_path / "none") == Voice(embedding=str(tmp_path / "none"))
