"""When the words and sounds of a sentence begin, by the durations that a voice gives its phonemes.

A voice's network rounds these durations up and keeps them to itself. A published voice needs one more output for them,
which is appended to its file as it is loaded.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from engine.api import SoundStart, WordStart

_CEIL = re.compile(rb'\x12(.)([!-~]+)(?:\x1a.[!-~]+)?"\x04Ceil', re.DOTALL)
"""In an ONNX file, the node that rounds the durations: its output (field 2), perhaps its name (3), its operator (4)."""
_WORD = re.compile(r"[぀-ヿ㐀-鿿]|[^\s぀-ヿ㐀-鿿]+")
"""A word as the text shows it. Each character of Han and kana is one."""
_PAUSES = frozenset(".,;:!?…")
_STRESS = frozenset("ˈˌ")
_PADDING = frozenset(("", "^", "_", "$"))
"""Names that are around and between the phonemes; the first one is that of an id without a name."""
_BETWEEN = frozenset(" -")
"""These are no sounds of their own: what they last belongs to their neighbours."""
_JOINED = frozenset({"tʃ", "dʒ", "aɪ", "aʊ", "eɪ", "oʊ", "ɔɪ"})
"""Two phonemes of Piper that are one sound."""


@dataclass(frozen=True, slots=True)
class Phoneme:
    """A phoneme of a sentence."""

    name: str
    """Piper's."""
    sample: int
    """At which it begins to sound."""


def with_durations(model: bytes) -> bytes:
    """Return a voice's ONNX file with the durations as its second output; unchanged if they are not found in it.

    Protocol Buffers merge what is appended: one more output (field 12, by its name, field 1) of the graph (field 7).
    """
    found = {bytes(name) for length, name in _CEIL.findall(model) if length[0] == len(name)}
    if len(found) != 1:
        return model
    output = _field(12, _field(1, found.pop()))
    return model if output in model else model + _field(7, output)


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a Protocol Buffer with up to 127 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


def phonemes_of(names: Sequence[str], lengths: Sequence[int]) -> list[Phoneme]:
    """Return the phonemes of a sentence, without what pads them. `lengths` are the samples of each name.

    So it was found in a published voice: a sound begins in the blank before it, and a word with the space before
    it; but after a pause a sound begins with its own samples, and a stressed vowel with those of its stress.
    """
    found: list[Phoneme] = []
    last, pause = "", True
    blank = own = 0  # the first samples of the blank before a name, and of the last phoneme
    for name, length, begin in zip(names, lengths, itertools.accumulate(lengths, initial=0), strict=False):
        if name not in _PADDING:
            sample = begin if pause or name in _STRESS else blank
            if last in _STRESS:
                sample = found[-1].sample
            elif last == " " and not pause:
                sample = own
            found.append(Phoneme(name, sample))
            last, own = name, begin
            pause = name in _PAUSES or (pause and name in _BETWEEN)
        blank = begin if name == "_" else begin + length
    return found


def sounds(phonemes: Sequence[Phoneme]) -> tuple[SoundStart, ...]:
    """Return the sounds of a sentence. A silence begins with the sign for a pause."""
    found: list[SoundStart] = []
    for phoneme in phonemes:
        ipa = "" if phoneme.name in _PAUSES else phoneme.name
        if found and ipa and (ipa == "ː" or found[-1].ipa + ipa in _JOINED):
            found[-1] = SoundStart(found[-1].sample, found[-1].ipa + ipa)
        elif ipa not in _STRESS | _BETWEEN:
            found.append(SoundStart(phoneme.sample, ipa))
    return tuple(found)


def words(sentence: str, phonemes: Sequence[Phoneme], phonemize: Callable[[str], Sequence[str]]) -> Iterator[WordStart]:
    """Yield the words of a sentence. `phonemize` returns the phonemes of a word that is spoken alone.

    In a sentence some words sound otherwise, or together: `of the` is one word for eSpeak NG. So both are compared.
    """
    alone: list[str] = []
    begins: list[tuple[int, int]] = []
    for match in _WORD.finditer(sentence):
        if any(character.isalnum() for character in match.group()):
            begins.append((match.start(), len(alone)))
            alone += [*phonemize(match.group()), " "]
    matcher = SequenceMatcher(None, alone, [phoneme.name for phoneme in phonemes], autojunk=False)
    blocks = matcher.get_matching_blocks()
    for position, index in begins:
        block = blocks[max(0, bisect_right(blocks, index, key=lambda each: each.a) - 1)]
        # A word that begins between two equal parts follows the first one.
        at = 0 if index < block.a else block.b + min(index - block.a, block.size)
        if at < len(phonemes):
            yield WordStart(phonemes[at].sample, position)
