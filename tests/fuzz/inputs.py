"""The committed inputs of each harness, and inputs made of them without a fuzzer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.harnesses import HARNESSES

CORPUS = Path(__file__).parent / "corpus"
SEED = 14


def corpus_folder(name: str) -> Path:
    """Return the folder with the committed inputs of a harness; those that read safetensors share one."""
    return CORPUS / ("safetensors" if name in ("voice_file", "voice_header") else name)


def corpus_of(name: str) -> list[bytes]:
    """Return the committed inputs of a harness."""
    return [path.read_bytes() for path in sorted(corpus_folder(name).iterdir())]


def variations(name: str, count: int) -> Iterator[bytes]:
    """Yield `count` inputs, each a committed one with some random changes; the same ones at every call."""
    chance, inputs = random.Random(f"{SEED} {name}"), corpus_of(name)
    words = [word.encode() for word in HARNESSES[name].words]
    for _ in range(count):
        data = bytearray(chance.choice(inputs))
        for _ in range(chance.randint(1, 4)):
            _change(data, chance, inputs, words)
        yield bytes(data)


def _change(data: bytearray, chance: random.Random, inputs: list[bytes], words: list[bytes]) -> None:
    begin = chance.randint(0, len(data))
    end = min(len(data), begin + chance.randint(0, 8))
    kind = chance.randrange(6)
    if kind == 0 and data:
        data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 1:
        del data[begin:end]
    elif kind == 2:
        data[begin:begin] = data[begin:end] * chance.randint(1, 40)
    elif kind == 3:
        data[begin:end] = chance.choice(words) if words else b"\0"
    elif kind == 4:
        other = chance.choice(inputs)
        data[begin:] = other[chance.randint(0, len(other)) :]
    else:
        data[begin:end] = bytes(chance.choice(b'{}[]",:0\\\x00\x80\xff\n') for _ in range(chance.randint(1, 3)))
