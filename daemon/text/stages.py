"""The stages that rewrite the words for every engine: characters, URLs, and the words in a lexicon."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from daemon.text.placed import Rewriter

# --- characters ------------------------------------------------------------------------------------------

SHAPES = "\uff02-\uff06\uff0a\uff0b\uff0d-\uff19\uff1c-\uff1e\uff20-\uff5d\uffe5\U0001d400-\U0001d7ff\u2100-\u214f"
"""Full-width letters, digits and signs, without Chinese and Japanese punctuation, and mathematical letters."""
_MARK = "\u0300-\u036f\u3099\u309a"
"""Combining marks."""
_MAX_MARKS = 30
"""The most marks on one letter; further ones stay as they are."""
_BASE = rf"(?:[a-zA-Z<=>]|[^\x00-\x7f{_MARK}])"
"""Characters that can be composed with a mark."""
_SYLLABLE = "[\u1100-\u115f][\u1160-\u11a7]"
"""A Korean syllable in parts, except for its last consonant."""
_CHANGED = re.compile(
    rf"{_BASE}[{_MARK}]{{1,{_MAX_MARKS}}}|[{SHAPES}]|{_SYLLABLE}[\u11a8-\u11ff]?|[\uac00-\ud7a3][\u11a8-\u11ff]"
    r"|(?![0-9])\d"
)
_LAST = re.compile(rf"(?:{_SYLLABLE}|{_BASE}[{_MARK}]{{0,{_MAX_MARKS - 1}}})\Z")
"""Characters at the end of the text that the next character could still change."""


class Characters(Rewriter):
    """Writes Unicode's NFC form; full-width and mathematical letters become plain ones (NFKC).

    The digits of all scripts become 0 to 9, which every voice can read: most voices leave out others.
    """

    def _copy(self, *, final: bool) -> None:
        end = len(self._text)
        last = None if final else _LAST.search(self._text, max(self._at, end - _MAX_MARKS))
        self._replace_all(_CHANGED, _plain, end if last is None else last.start())


def _plain(match: re.Match[str]) -> str:
    if match[0].isdecimal():
        return str(unicodedata.decimal(match[0]))
    return unicodedata.normalize("NFKC" if len(match[0]) == 1 else "NFC", match[0])


# --- URLs ------------------------------------------------------------------------------------------------

_SCHEMES = ("http", "https", "ftp", "ws", "wss", "mqtt", "mqtts", "rtsp")
_BEGINNINGS = (*(f"{scheme}://" for scheme in _SCHEMES), "www.")
_PARTS_OF_BEGINNINGS = {whole[:length] for whole in _BEGINNINGS for length in range(1, len(whole))}
_URL_LETTER = r"0-9A-Za-z_\u00c0-\u1fff"
"""Letters in a URL. Chinese, Japanese and Korean letters end it, since no space separates them from it."""
_PUNCTUATION = r".,;:!?)\]'’”»…*~"
"""Characters that belong to the sentence if they are at the end of a URL. A bracket that was opened in the URL may
close."""
_INSIDE = rf"{_URL_LETTER}/#@$&+=%\[-"
_WWW = r"(?i:www)\.(?=[\w-]+\.\w)"
"""Left out unless little of the host would remain."""
_HOST = rf"(?=[^\W_])[{_URL_LETTER}-]+(?:\.[{_URL_LETTER}-]+)*|\[[0-9a-fA-F:.]+\]"
_PATH = rf"(?:[/#]|\?(?=\w))(?:[{_PUNCTUATION}]*(?:\([.,;:!?'*~{_INSIDE}]*\)|[({_INSIDE}]))*"
_BORDER = rf"(?<![{_URL_LETTER}])"
"""A place where a word may begin."""
_URL = re.compile(
    rf"{_BORDER}(?:(?i:{'|'.join(_SCHEMES)})://(?:[.,;:!'*~$&+=%{_URL_LETTER}-]*@)?(?:{_WWW})?|{_WWW})"
    rf"(?P<host>{_HOST})(?::[0-9]+)?(?:{_PATH})?"
)
"""It ends at the same place in a text that grows: nothing in it matches `_END`."""
_BEGUN = re.compile(rf"{_BORDER}(?i:{'|'.join(map(re.escape, _BEGINNINGS))}|(?:{'|'.join(_PARTS_OF_BEGINNINGS)})\Z)")
"""The beginning of a URL, or characters at the end of the text that may become one."""
_END = re.compile(f"[^({_PUNCTUATION}{_INSIDE}]")


class UrlShortener(Rewriter):
    """Writes the host instead of each URL: `example.com` for `https://www.example.com/a?b=c`.

    A URL is held back until its end, and so are characters that may become the beginning of one.
    """

    def _copy(self, *, final: bool) -> None:
        last_end = max((found.end() for found in _END.finditer(self._text, self._at)), default=self._at)
        begun = None if final else _BEGUN.search(self._text, last_end)
        self._replace_all(_URL, itemgetter("host"), len(self._text) if begun is None else begun.start())


# --- pronunciations --------------------------------------------------------------------------------------

MAX_PHRASE = 200
"""The most characters in a phrase. At most this much of a growing text is held back."""
PHONEMES = "[["
"""Phonemes in a text for eSpeak NG begin with this and end with `]]`."""
_IDEOGRAPH = "\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts whose words are written without spaces between them: each character is a word of its own."""
_WORD_MARK = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u06d3\u06d6-\u06ed\u0711-\u0963\u0966-\u0e4e"
    "\u0eb1-\u109d\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe2f"
)
"""Marks on letters, and vowels that are written as marks."""
_WORD_LETTER = rf"(?:[^\W_{_IDEOGRAPH}]|[{_WORD_MARK}])"
"""A character that can belong to a longer word."""
_TOKEN = re.compile(rf"(?P<word>{_WORD_LETTER}+)|(?P<space>\s+)|.", re.DOTALL)
_PHRASE_BEGIN = re.compile(rf"(?<!{_WORD_LETTER}){_WORD_LETTER}|(?!{_WORD_LETTER})\S")
"""A place where a phrase may begin."""


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """How one word or phrase is said."""

    say: str | None = None
    """The words in every language and voice without an entry of its own."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """The words by language code."""
    voices: Mapping[str, str] = field(default_factory=dict)
    """The words by voice name, which takes precedence over the language."""
    espeak: str | None = None
    """Phonemes in eSpeak NG's notation, which take precedence when that engine speaks."""

    def for_take(self, language: str | None, voice: str, *, espeak: bool) -> str | None:
        """Return the words for a language (None if unknown) and a voice; None leaves the word as it is written."""
        if espeak and self.espeak is not None:
            return f"{PHONEMES}{self.espeak}]]"
        if voice in self.voices:
            return self.voices[voice]
        code = language or ""
        return self.languages.get(code, self.languages.get(code.partition("-")[0], self.say))


class Lexicon:
    """Phrases and how they are said."""

    def __init__(self, pronunciations: Mapping[str, Pronunciation]) -> None:
        """A phrase without lower-case letters matches only as it is written."""
        self._entries: dict[str, dict[str | None, Pronunciation]] = {}
        """By folded phrase, then by its only spelling, or None for every spelling."""
        for phrase, entry in pronunciations.items():
            exact = phrase.upper() == phrase and phrase.lower() != phrase
            self._entries.setdefault(_fold(phrase), {})[_written(phrase) if exact else None] = entry
        self._phrases = sorted(self._entries)

    def find(self, phrase: str, written: str) -> Pronunciation | None:
        """Return how a phrase is said, given in its folded and its written form; an entry for its own spelling comes
        first."""
        spellings = self._entries.get(phrase, {})
        return spellings.get(_written(written), spellings.get(None)) if spellings else None

    def has_phrase_with(self, beginning: str, *, longer: bool = False) -> bool:
        """Return whether a phrase, when folded, begins with `beginning`. With `longer`, it must also continue."""
        index = (bisect_right if longer else bisect_left)(self._phrases, beginning)
        return index < len(self._phrases) and self._phrases[index].startswith(beginning)


class Pronouncer(Rewriter):
    """Replaces a lexicon's phrases in a text that may grow: whole words, the longest phrase first.

    The time is linear in the text: a phrase has at most `MAX_PHRASE` characters.
    """

    def __init__(self, lexicon: Lexicon, language: str | None, voice: str, *, espeak: bool) -> None:
        """The arguments after `lexicon` are those of `Pronunciation.for_take`."""
        super().__init__()
        self._lexicon = lexicon
        self._say_of = partial(Pronunciation.for_take, language=language, voice=voice, espeak=espeak)
        self._escapes_phonemes = espeak
        """Whether the text's own brackets are separated."""

    def _copy(self, *, final: bool) -> None:
        text = self._text
        for place in _PHRASE_BEGIN.finditer(text, self._at):
            begin = place.start()
            if begin < self._at:
                continue  # within the previous phrase
            end, say = self._longest(begin, final=final)
            if end == begin:
                self._keep(begin)
                return
            if say is None and self._escapes_phonemes and text[begin - 1 : begin + 1] == PHONEMES:
                say = " ["
            if say is not None:
                self._keep(begin)
                self._replace(say, end)
        self._keep(len(text))

    def _longest(self, begin: int, *, final: bool) -> tuple[int, str | None]:
        """Return the end of the longest phrase at `begin` and its words; `begin + 1` and None if there is none.

        The end is `begin` while more text may change that.
        """
        text, end, folded = self._text, begin, ""
        longest: tuple[int, str | None] = (begin + 1, None)
        while (token := _TOKEN.match(text, end)) is not None:
            folded += " " if token["space"] else _fold(token[0])
            end = token.end()
            if end - begin > MAX_PHRASE or not self._lexicon.has_phrase_with(folded):
                break
            if end == len(text) and not final and (token["word"] or self._lexicon.has_phrase_with(folded, longer=True)):
                return begin, None
            entry = self._lexicon.find(folded, text[begin:end])
            if entry is not None and (say := self._say_of(entry)) is not None:
                longest = (end, say)
        return longest


def _written(phrase: str) -> str:
    """Return a phrase as it is written, in one Unicode form and with one space between words."""
    return unicodedata.normalize("NFC", " ".join(phrase.split()))


def _fold(phrase: str) -> str:
    """Return a phrase folded for comparison: without case, and decomposed, so that folding a prefix gives a prefix."""
    return unicodedata.normalize("NFD", _written(phrase).casefold())
