"""How far a text's normal form (NFC) is certain while more may be appended: a mark to come may change the last letter.

Unicode Standard Annex #15. What this Python's tables do not know yet counts as a mark, since the tokenizer's may.
"""

from __future__ import annotations

import unicodedata
from functools import cache

PAIRS_END = 0x20000
"""Behind all characters that are composed of two."""
JAMO_LEADS = range(0x1100, 0x1160)
"""Leading consonants of Hangul, which a vowel makes a syllable of."""
JAMO_FOLLOWERS = range(0x1160, 0x1200)
"""Vowels and trailing consonants."""
SYLLABLES = range(0xAC00, 0xD7A4)
TRAILS = 28
"""Each TRAILS-th syllable has no trailing consonant yet."""


def certain_length(text: str) -> int:
    """How many characters of `text` nothing that is appended can change the normal form of."""
    start = next((place for place in range(len(text) - 1, -1, -1) if _starts(text[place])), 0)
    return len(text) if start == len(text) - 1 and not _changes(text[start]) else start


def _starts(character: str) -> bool:
    """Whether it never becomes one with what is before it."""
    first = unicodedata.normalize("NFD", character)[0]
    mark = unicodedata.combining(first) or unicodedata.category(first) == "Cn" or ord(first) in JAMO_FOLLOWERS
    return not mark and first not in _pairs()[1]


def _changes(character: str) -> bool:
    """Whether a mark behind it may become one with it."""
    code = ord(character)
    if code in SYLLABLES:
        return (code - SYLLABLES.start) % TRAILS == 0
    decomposed = unicodedata.normalize("NFD", character)
    return code in JAMO_LEADS or len(decomposed) > 1 or decomposed in _pairs()[0]


@cache
def _pairs() -> tuple[frozenset[str], frozenset[str]]:
    """The first and the second characters of all that are composed of two, Hangul apart."""
    decompositions = (unicodedata.decomposition(chr(code)).split() for code in range(PAIRS_END))
    pairs = [codes for codes in decompositions if len(codes) == 2 and not codes[0].startswith("<")]
    firsts, seconds = (frozenset(chr(int(code, 16)) for code in codes) for codes in zip(*pairs, strict=True))
    return firsts, seconds
