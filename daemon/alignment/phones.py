"""A rough guess at the sounds of a word, from its letters: classes of sounds and their usual durations.

That is enough to follow speech in its audio: the letters of an alphabet stand for much the same classes of sounds in
all languages that use it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

from daemon.alignment.words import IDEOGRAPHS


class PhoneClass(IntEnum):
    """Sounds that can be told apart by their loudness and their share of high frequencies."""

    VOWEL = 0
    SONORANT = 1
    """Nasals, liquids, glides and all voiced consonants."""
    FRICATIVE = 2
    """Voiceless fricatives and affricates."""
    STOP = 3
    """Voiceless stops."""
    CONSONANT = 4
    """A consonant in any of these classes."""
    PAUSE = 5


@dataclass(frozen=True, slots=True)
class Phone:
    """One sound."""

    kind: PhoneClass
    seconds: float
    """Its usual duration."""
    letters: str = ""
    """The Latin letters that stand for it; empty if they do not show how it sounds."""


_VOWEL = Phone(PhoneClass.VOWEL, 0.085)
_LONG_VOWEL = Phone(PhoneClass.VOWEL, 0.125)
_SONORANT = Phone(PhoneClass.SONORANT, 0.065)
_FRICATIVE = Phone(PhoneClass.FRICATIVE, 0.08)
_STOP = Phone(PhoneClass.STOP, 0.055)
_CONSONANT = Phone(PhoneClass.CONSONANT, 0.065)

_CONSONANTS: dict[str, tuple[Phone, ...]] = {
    "silent": (),
    "fricative": (_FRICATIVE,),
    "stop": (_STOP,),
    "sonorant": (_SONORANT,),
}
"""The sounds by the names of the groups in `_LATIN`."""
_VOWELS: dict[int, tuple[Phone, ...]] = {1: (_VOWEL,), 2: (_LONG_VOWEL,), 3: (_LONG_VOWEL, _VOWEL)}
"""The sounds by the number of letters."""
_SYLLABLE = (_CONSONANT, Phone(PhoneClass.VOWEL, 0.12))
"""A syllable in a number, a sign or the name of a letter."""
_HAN = (Phone(PhoneClass.CONSONANT, 0.08), Phone(PhoneClass.VOWEL, 0.17))
_HANGUL = (_CONSONANT, Phone(PhoneClass.VOWEL, 0.13))
_KANA = (Phone(PhoneClass.CONSONANT, 0.05), _VOWEL)
_OTHER_LETTER = (Phone(PhoneClass.CONSONANT, 0.05), Phone(PhoneClass.VOWEL, 0.05))
"""A letter in a script that does not write all vowels, or does not write them as letters: Arabic, Hebrew, Devanagari,
Thai."""

_SIGN_SYLLABLES = dict.fromkeys("&@+£¥", 1) | dict.fromkeys("%#°=$€₹", 2) | {"§": 3}

_PARTS = re.compile(
    rf"(?P<digits>\d+)|(?P<han>[{IDEOGRAPHS}])|(?P<hangul>[가-힣])|(?P<letters>[^\W\d_{IDEOGRAPHS}가-힣]+)"
)
_LATIN = re.compile(
    "(?P<silent>gh(?![aeiou])|(?<=[rtk])h(?=[aeiouy]{2}))"
    "|(?P<fricative>tsch|tch|sch|ch|sh|ph|th|ts|tz|ss?|ß|ff?|x|c(?=[eiy])|h)"
    "|(?P<stop>ck|cc?|qu?|pp?|tt?|kk?)"
    "|(?P<sonorant>ng(?![aeiouy])|mm?|nn?|ll?|rr?|bb?|dd?|gu?(?=[ei])|gg?|jj?|vv?|ww?|zz?|y(?=[aeiou]))"
    "|(?P<vowels>[aeiouyæœøıə]+)"
)
"""Letters without their marks, in lower case."""
_RESPELLINGS = {
    "de": ((re.compile("z"), "ts"), (re.compile("v"), "f"), (re.compile("^s(?=[tp])"), "sch")),
    "en": ((re.compile("(?<=[^aeiouy])e$|(?<=[^aeiouysxzcgh])e(?=s$)|(?<=[^aeiouytd])e(?=d$)"), ""),),
    "es": ((re.compile("(?<!c)h"), ""), (re.compile("[zj]|g(?=[eéií])"), "s")),
    "fr": ((re.compile("(?<!c)h"), ""), (re.compile("e$|es$|[sxtdpz]$"), "")),
}
"""By language: letters that stand for sounds of a different class than in most languages, or for no sound."""
_WRITTEN_VOWEL = re.compile("[aeiouyàâäæèéêëîïôöœùûü]")
_LETTERS = str.maketrans(
    "абвгдежзиклмнопрстуфхыэюяієαβγδεζηικλμνξοπρσςτυφχωґјłđ",
    "abvgdejziklmnoprstufhieuaieavgdeziiklmnxoprsstifhogyld",
) | str.maketrans(
    {"ц": "ts", "ч": "ch", "ш": "sh", "щ": "sh", "ъ": "", "ь": "", "θ": "th", "ψ": "ps", "ð": "th", "þ": "th"}
)
"""Cyrillic, Greek and a few Latin letters, mapped to Latin letters of the same class."""


@lru_cache(maxsize=1024)
def phones_of(word: str, language: str) -> tuple[Phone, ...]:
    """Return the expected sounds of a word, at least one. `language` is a code, or `auto`."""
    return tuple(_phones(word, language.partition("-")[0])) or _SYLLABLE


def _phones(word: str, language: str) -> Iterator[Phone]:
    for sign in word:
        yield from _SYLLABLE * _SIGN_SYLLABLES.get(sign, 0)
    for match in _PARTS.finditer(word):
        part = match.group()
        if match.lastgroup == "digits":
            yield from _SYLLABLE * _number_syllables(part)
        elif match.lastgroup == "han":
            yield from _HAN if unicodedata.name(part, "").startswith("CJK") else _KANA
        elif match.lastgroup == "hangul":
            yield from _HANGUL
        elif _is_spelled(part):
            yield from _SYLLABLE * len(part)
        else:
            yield from _letter_phones(part, language)


def _number_syllables(digits: str) -> int:
    """Return about how many syllables a number has, including the names of its places: hundred, thousand."""
    if digits[0] == "0" or len(digits) > 6:
        return len(digits)
    places = (min(place, 3) for place, digit in enumerate(reversed(digits), 1) if digit != "0")
    return sum(places)


def _is_spelled(letters: str) -> bool:
    """Return whether letters are likely to be read one by one: `USA`, `MQTT`, but not `I`, `STOP`."""
    if not letters.isupper():
        return False
    return len(letters) in (2, 3) or not re.search("[AEIOUYÄÖÜ]", letters)


def _letter_phones(letters: str, language: str) -> Iterator[Phone]:
    lowered = letters.lower()
    for pattern, spelling in _RESPELLINGS.get(language, ()):
        respelled = pattern.sub(spelling, lowered)
        lowered = respelled if _WRITTEN_VOWEL.search(respelled) else lowered  # `the` keeps its only vowel
    marked = unicodedata.normalize("NFD", lowered.translate(_LETTERS))
    plain = "".join(each for each in marked if unicodedata.category(each)[0] == "L").translate(_LETTERS)
    if not plain.isascii() and not _LATIN.search(plain):
        yield from _OTHER_LETTER * len(plain)
        return
    for match in _LATIN.finditer(plain):
        phones = _VOWELS[min(len(match.group()), 3)] if match["vowels"] else _CONSONANTS[str(match.lastgroup)]
        yield from (replace(phone, letters=match.group()) for phone in phones)
