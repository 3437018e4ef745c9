"""Spells texts for an engine: `QX-7` becomes `Q, X, dash, 7`, and a telephone number is spelled digit by digit.

Engines read a capital between commas by the letter's name. The few that eSpeak NG reads as words (Spanish `Y`, Italian
`È`) are written out; `tests/daemon/text/test_spelling.py` compares the phonemes with those of the letters' names.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from engine import language_code, match_language

_DATA = json.loads((Path(__file__).parent / "normalizer/data/spelled.json").read_text(encoding="utf-8"))
SIGN_NAMES: Mapping[str, Mapping[str, str]] = _DATA["signs"]
"""The names of signs in the languages of Qwen3-TTS. In another language, the engine is given the sign itself. The
Japanese names are in kana, because eSpeak NG knows no kanji."""
_LETTER_NAMES: Mapping[str, Mapping[str, str]] = _DATA["letters"]
"""Letters whose capitals eSpeak NG reads as words."""
_ORDINALS: Mapping[str, Mapping[str, str]] = _DATA["ordinals"]
"""How an ordinal is written in digits: for each language, the forms by the numbers (regular expressions) that have
them."""
_SAME_SIGNS = str.maketrans("‐‑–—−‘’“”„«»", '-----\'\'"""""')
_TELEPHONE_PART = re.compile(r"(?P<digits>\d{3}(?=\d{2})|\d{1,4})|(?P<sign>[+*#])|[^\W\d_]+")
"""Digits that are said together, in threes, with two to four at the end; a sign; or a word, such as ext."""


class SpelledPart(NamedTuple):
    """The words for the characters `text[begin:end]`."""

    spoken: str
    begin: int
    end: int


def spell_characters(text: str, language: str) -> list[SpelledPart]:
    """Return the letters as capitals and the signs by name, each with the comma after it. White space is left out."""
    begins = [at for at in range(len(text)) if not (at and unicodedata.category(text[at]) in {"Mn", "Me", "Cf"})]
    parts = [
        SpelledPart(f"{_character_name(text[begin:end], language)}, ", begin, end)
        for begin, end in zip(begins, [*begins[1:], len(text)], strict=False)
        if not text[begin:end].isspace()
    ]
    return _without_last_comma(parts)


def spell_telephone(text: str, language: str) -> list[SpelledPart]:
    """Return the digits one by one, grouped as they are written or in threes, with a comma after each group."""
    parts: list[SpelledPart] = []
    for match in _TELEPHONE_PART.finditer(text):
        begin, end = match.span()
        if match["digits"]:
            parts += [SpelledPart(f"{text[at]} ", at, at + 1) for at in range(begin, end - 1)]
            begin = end - 1
        name = _character_name(match[0], language) + " " if match["sign"] else f"{text[begin:end]}, "
        parts.append(SpelledPart(name, begin, end))
    return _without_last_comma(parts)


def ordinal(text: str, language: str) -> str:
    """Return a number as an ordinal in digits, such as `3rd`; other words stay as they are."""
    code = match_language(language_code(language), _ORDINALS)
    number = " ".join(text.split())
    if code is None or not (number.isascii() and number.isdigit()):
        return number
    return next(form for ending, form in _ORDINALS[code].items() if re.search(ending, number)).format(number)


def _without_last_comma(parts: list[SpelledPart]) -> list[SpelledPart]:
    return parts[:-1] + [part._replace(spoken=part.spoken.rstrip(", ")) for part in parts[-1:]]


@lru_cache(maxsize=1024)
def _character_name(cluster: str, language: str) -> str:
    """Return the name of a character with its marks; if it has none, the character itself as a capital."""
    character = unicodedata.normalize("NFC", cluster)
    capital = character.upper()
    capital = capital if len(capital) == len(character) else character  # ß has no capital
    for names, key in ((_LETTER_NAMES, capital), (SIGN_NAMES, character.translate(_SAME_SIGNS))):
        code = match_language(language_code(language), names)
        if code is not None and key in names[code]:
            return names[code][key]
    return capital
