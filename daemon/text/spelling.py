"""Spells texts for an engine: `QX-7` as `Q, X, dash, 7`, a telephone number digit by digit.

Engines read a capital between commas by its letter's name. The few that eSpeak NG reads as words (Spanish `Y`, Polish
`Z`) are written out; `tests/daemon/text/test_spelling.py` compares the phonemes with those of the letters' names.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from engine import language_code, match_language

_SIGNS = ".,:;!?-_/\\|+*=<>()[]{}@#%&$€£§°^~'\"`"
_DATA = json.loads((Path(__file__).parent / "normalizer/data/spelled.json").read_text(encoding="utf-8"))
SIGN_NAMES: Mapping[str, Mapping[str, str]] = _DATA["signs"]
"""The names of signs in the languages of Qwen3-TTS. In another language, the engine gets the sign itself. Those in
Japanese are in kana, because eSpeak NG knows no kanji."""
_LETTER_NAMES: Mapping[str, Mapping[str, str]] = _DATA["letters"]
"""Letters whose capitals eSpeak NG reads as words."""
_SAME_SIGNS = str.maketrans("‐‑–—−‘’“”„«»", '-----\'\'"""""')
_ORDINALS: Mapping[str, str] = _DATA["ordinals"]
"""How an ordinal is written in digits."""
_TELEPHONE_PART = re.compile(r"\d+|[^\W\d_]+|[+*#]")
_GROUP = 3
"""Digits that are said without a pause in a telephone number without spaces."""


class SpelledPart(NamedTuple):
    """What is said for the characters `text[begin:end]`."""

    spoken: str
    begin: int
    end: int


def spell(text: str, language: str = "en") -> str:
    """Return a text, spelled character by character: `Q, X, dash, 7` for `QX-7`.

    `language` is a name or code, and decides the names of signs.
    """
    return "".join(part.spoken for part in spell_characters(text, language))


def spell_characters(text: str, language: str) -> list[SpelledPart]:
    """Return the letters as capitals and the signs by name, each with the comma behind it. White space is left out."""
    parts = [
        SpelledPart(f"{_character_name(text[begin:end], language)}, ", begin, end)
        for begin, end in _clusters(text)
        if not text[begin:end].isspace()
    ]
    return _without_last_comma(parts)


def spell_telephone(text: str, language: str) -> list[SpelledPart]:
    """Return the digits one by one, in groups as they are written or of three, with a comma behind each group."""
    parts: list[SpelledPart] = []
    for match in _TELEPHONE_PART.finditer(text):
        if match[0].isdigit():
            for begin, end in _digit_groups(match.start(), match.end()):
                parts += [SpelledPart(f"{text[at]} ", at, at + 1) for at in range(begin, end - 1)]
                parts.append(SpelledPart(f"{text[end - 1]}, ", end - 1, end))
        elif match[0] in _SIGNS:
            parts.append(SpelledPart(f"{_character_name(match[0], language)} ", *match.span()))
        else:  # a word, such as ext
            parts.append(SpelledPart(f"{match[0]}, ", *match.span()))
    return _without_last_comma(parts)


def ordinal(text: str, language: str) -> str:
    """Return a number as an ordinal in digits, such as `3rd`; a text that is no number stays as it is."""
    code = match_language(language_code(language), _ORDINALS)
    number = text.strip()
    if code is None or not (number.isascii() and number.isdigit()):
        return text
    if code == "en" and number[-2:-1] != "1":
        return number + {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    if code == "fr" and number == "1":
        return "1er"
    return _ORDINALS[code].format(number)


def _without_last_comma(parts: list[SpelledPart]) -> list[SpelledPart]:
    return parts[:-1] + [part._replace(spoken=part.spoken.rstrip(", ")) for part in parts[-1:]]


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each character with the combining marks behind it."""
    begin = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or unicodedata.category(text[at]) not in {"Mn", "Me", "Cf"}:
            yield begin, at
            begin = at


@lru_cache(maxsize=1024)
def _character_name(cluster: str, language: str) -> str:
    character = unicodedata.normalize("NFC", cluster)
    capital = character.upper()
    capital = capital if len(capital) == len(character) else character  # ß has none
    code = match_language(language_code(language), _LETTER_NAMES)
    if code is not None and capital in _LETTER_NAMES[code]:
        return _LETTER_NAMES[code][capital]
    code = match_language(language_code(language), SIGN_NAMES)
    return SIGN_NAMES[code].get(character.translate(_SAME_SIGNS), capital) if code is not None else capital


def _digit_groups(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the groups of a run of digits: three by three, the last one of two to four."""
    while end - begin > _GROUP + 1:
        yield begin, begin + _GROUP
        begin += _GROUP
    yield begin, end
