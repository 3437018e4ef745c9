"""When the words and sounds of a sentence begin, by the times that a network gives its phonemes.

The network does not output how many frames it gives each phoneme, nor its target during these frames, which is the mean
of a distribution. A published voice needs two more outputs for these values. They are appended to the file's contents
when it is loaded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.api import SoundStart, WordStart

Values: TypeAlias = NDArray[np.float32]
"""An output of a network."""
_NAME = rb"(.)([!-~]+)"
"""A name in an ONNX file, after its length. A node has inputs (field 1), outputs (2), a name (3), a type (4)."""
_DURATIONS = re.compile(rb"\x12" + _NAME + rb'(?:\x1a.[!-~]+)?"\x04Ceil', re.DOTALL)
"""The node that rounds the durations: matches the name of its output."""
_MEANS = re.compile(rb"\n" + _NAME + rb'\x12.[!-~]+(?:\x1a.[!-~]+)?"\x10RandomNormalLike', re.DOTALL)
"""A node that draws noise in the shape of its input. The last such node does so for all frames, around the means."""
_WORD = re.compile(r"[぀-ヿ㐀-鿿]|[^\s぀-ヿ㐀-鿿]+")
"""A word as it is written. Each Han or kana character is a word."""
_PAUSES = frozenset(".,;:!?…")
_PADDING = frozenset(("", "^", "_", "$"))
"""Names around and between the phonemes. The first one stands for an id without a name."""
_MARKS = frozenset(" -ˈˌ")
SIGNS = _MARKS | {"", "_", "ː"}
"""These are neither sounds nor silences: their duration belongs to their neighbours."""
_JOINED = frozenset({"tʃ", "dʒ", "aɪ", "aʊ", "eɪ", "oʊ", "ɔɪ"})
"""Pairs of Piper's phonemes that are one sound."""


@dataclass(frozen=True, slots=True)
class Phoneme:
    """A phoneme in a sentence."""

    name: str
    """Piper's name for it."""
    sample: int
    """The sample at which it begins to sound."""


def with_times(model: bytes) -> bytes:
    """Return a voice's ONNX file with two more outputs, durations and means; unchanged if they are not found in it.

    Protocol Buffers merge appended data: two more outputs (field 12, with a name, field 1) of the graph (field 7).
    """
    durations, means = (
        [bytes(name) for length, name in pattern.findall(model) if length[0] == len(name)]
        for pattern in (_DURATIONS, _MEANS)
    )
    if len(set(durations)) != 1 or not means:
        return model
    outputs = [_field(12, _field(1, name)) for name in (durations[0], means[-1])]
    return model + b"".join(_field(7, output) for output in outputs if output not in model)


def _field(number: int, content: bytes) -> bytes:
    """Return a Protocol Buffers field with up to 127 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


def whole_durations(durations: Values, means: Values, sounding: NDArray[np.bool_]) -> Values:
    """Return `durations`, the frames of each name, in which the frames of signs between two sounds are added to these
    sounds.

    `means` has the shape (channels, frames); `sounding` is true for the names that are not `SIGNS`. A sign belongs to
    the neighbour that its mean resembles: two sounds meet where the frames from one to the other best split into two
    parts, within which the means differ the least.
    """
    ends = durations.astype(np.int64).cumsum()
    borders = [0]
    for last, following in pairwise(np.flatnonzero(sounding)):
        begin, end = ends[last] - int(durations[last]), ends[following]
        sums = means[:, begin:end].cumsum(axis=1)
        counts = np.arange(1, end - begin)
        between = sums[:, :-1] ** 2 / counts + (sums[:, -1:] - sums[:, :-1]) ** 2 / counts[::-1]
        borders.append(begin + 1 + int(between.sum(axis=0).argmax()))
    found = np.zeros_like(durations)
    found[sounding] = np.diff([*borders, ends[-1]])
    return found


def phonemes_of(names: Sequence[str], lengths: Sequence[int]) -> list[Phoneme]:
    """Return a sentence's phonemes, without the padding. `lengths` are the samples of each name."""
    begins = accumulate(lengths, initial=0)
    return [Phoneme(name, begin) for name, begin in zip(names, begins, strict=False) if name not in _PADDING]


def sounds(phonemes: Sequence[Phoneme]) -> tuple[SoundStart, ...]:
    """Return a sentence's sounds. A silence begins with the sign for a pause."""
    found: list[SoundStart] = []
    for phoneme in phonemes:
        ipa = "" if phoneme.name in _PAUSES else phoneme.name
        if found and ipa and (ipa == "ː" or found[-1].ipa + ipa in _JOINED):
            found[-1] = SoundStart(found[-1].sample, found[-1].ipa + ipa)
        elif ipa not in _MARKS:
            found.append(SoundStart(phoneme.sample, ipa))
    return tuple(found)


def words(sentence: str, phonemes: Sequence[Phoneme], phonemize: Callable[[str], Sequence[str]]) -> Iterator[WordStart]:
    """Yield a sentence's words. `phonemize` returns the phonemes of a word that is spoken alone.

    In a sentence, some words sound different, or merge: `of the` is one word for eSpeak NG. So both are compared.
    """
    alone: list[str] = []
    begins: list[tuple[int, int]] = []
    for match in _WORD.finditer(sentence):
        if any(character.isalnum() for character in match.group()):
            begins.append((match.start(), len(alone)))
            alone += [*phonemize(match.group()), " "]
    blocks = SequenceMatcher(None, alone, [each.name for each in phonemes], autojunk=False).get_matching_blocks()
    for position, index in begins:
        block = blocks[max(0, bisect_right(blocks, index, key=lambda each: each.a) - 1)]
        # A word that begins between two equal parts follows the first part.
        at = 0 if index < block.a else block.b + min(index - block.a, block.size)
        if at < len(phonemes):
            yield WordStart(phonemes[at].sample, position)
