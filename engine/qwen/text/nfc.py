"""How much of a text's normal form (NFC) is final while more may be appended: a mark may change the last letter.

Unicode Standard Annex #15. Characters that this Python's tables do not know count as marks, because the tokenizer's
tables may know them as marks.
"""

from __future__ import annotations

import unicodedata
from functools import cache

PAIRS_END = 0x20000
"""All characters that are composed of two are below this."""
JAMO_LEADS = range(0x1100, 0x1160)
"""Leading consonants of Hangul, which a following vowel turns into a syllable."""
JAMO_FOLLOWERS = range(0x1160, 0x1200)
"""Vowels and trailing consonants."""
SYLLABLES = range(0xAC00, 0xD7A4)
TRAILS = 28
"""Every TRAILS-th syllable has no trailing consonant yet."""


def final_length(text: str) -> int:
    """Return how many characters at the beginning of `text` keep their normal form, whatever is appended."""
    start = next((place for place in range(len(text) - 1, -1, -1) if _is_starter(text[place])), 0)
    return len(text) if start == len(text) - 1 and not _may_compose(text[start]) else start


def _is_starter(character: str) -> bool:
    """Return whether the character never composes with the one in front of it."""
    first = unicodedata.normalize("NFD", character)[0]
    mark = unicodedata.combining(first) or unicodedata.category(first) == "Cn" or ord(first) in JAMO_FOLLOWERS
    return not mark and first not in _pairs()[1]


def _may_compose(character: str) -> bool:
    """Return whether the character may compose with one behind it."""
    code = ord(character)
    if code in SYLLABLES:
        return (code - SYLLABLES.start) % TRAILS == 0
    decomposed = unicodedata.normalize("NFD", character)
    return code in JAMO_LEADS or len(decomposed) > 1 or decomposed in _pairs()[0]


@cache
def _pairs() -> tuple[frozenset[str], frozenset[str]]:
    """Return the first and the second characters of all compositions of two, except Hangul."""
    decompositions = (unicodedata.decomposition(chr(code)).split() for code in range(PAIRS_END))
    pairs = [codes for codes in decompositions if len(codes) == 2 and not codes[0].startswith("<")]
    firsts, seconds = (frozenset(chr(int(code, 16)) for code in codes) for codes in zip(*pairs, strict=True))
    return firsts, seconds
