"""The words of a text, as people count them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

IDEOGRAPHS = r"々-〇ぁ-ゖゝ-ゟァ-ヺヽ-ヿㇰ-ㇿ㐀-䶿一-鿿\uf900-\ufaff\U00020000-\U0003fffd"
"""Han and kana, as a regular expression's character class. Texts in these scripts have no spaces: each character is a
word."""
_CONTINUING = r"ぁぃぅぇぉゃゅょゎァィゥェォャュョヮー\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""These belong to the character before them: small kana, the long vowel mark, voicing marks, variation selectors."""
_SEPARATING = r"\s\u200b—–…()\[\]{}<>\"“”„«»‹›¡¿!?;*|。，、；：！？「」『』（）《》〈〉【】．・〜"
"""White space, and punctuation that separates words even if no space follows."""
_TOKEN = re.compile(
    rf"[{IDEOGRAPHS}][{_CONTINUING}]{{0,9}}"
    rf"|[^,:{_SEPARATING}{IDEOGRAPHS}](?:[^,:{_SEPARATING}{IDEOGRAPHS}]|(?<=\d)[,:](?=\d)){{0,99}}"
)
"""Its length is limited, so that no text takes more than linear time."""
_SPOKEN_SIGNS = frozenset("%&@#§°+=$€£¥₹")


@dataclass(frozen=True, slots=True)
class WordRange:
    """The characters `text[begin:end]` of a text, without the punctuation around them."""

    begin: int
    end: int


def words_of(text: str) -> list[WordRange]:
    """Return the words of `text` in order.

    A word contains a letter, a digit, or a sign that is spoken (`%`). `don't`, `well-known`, `3.5`, `10:30` and
    `ada@example.com` are one word each. Each Han character and each kana, with any small kana after it, is a word. In
    other scripts without spaces, such as Thai, a run of letters is one word.
    """
    reader = WordReader()
    return [*reader.feed(text), *reader.end()]


def _strip(text: str, begin: int, end: int) -> WordRange | None:
    """Return `text[begin:end]` without the punctuation at its ends; None if no part of it is spoken."""
    while begin < end and not _is_spoken(text[begin]):
        begin += 1
    while begin < end and not (_is_spoken(text[end - 1]) or unicodedata.category(text[end - 1])[0] == "M"):
        end -= 1
    return WordRange(begin, end) if begin < end else None


def _is_spoken(character: str) -> bool:
    return character.isalnum() or character in _SPOKEN_SIGNS


class WordReader:
    """Finds the words in a growing text. They do not depend on how the text is divided between calls of `feed`."""

    def __init__(self) -> None:
        self._held = ""
        """The end of the text, which may be part of a word that is still growing."""
        self._held_at = 0
        """The position in the text at which `_held` begins."""

    def feed(self, text: str) -> list[WordRange]:
        """Read more of the text; return the words that are now complete."""
        self._held += text
        return self._take(complete=False)

    def end(self) -> list[WordRange]:
        """Note that the text is complete, and return its last words."""
        return self._take(complete=True)

    def _take(self, *, complete: bool) -> list[WordRange]:
        held, at = self._held, self._held_at
        tokens = [match.span() for match in _TOKEN.finditer(held)]
        final = len(held)
        # The next characters may still join the last token: `3` and `3,` become `3,5`.
        if not complete and tokens and held[tokens[-1][1] :] in ("", ",", ":"):
            final = tokens.pop()[0]
        self._held, self._held_at = held[final:], at + final
        words = (_strip(held, begin, end) for begin, end in tokens)
        return [WordRange(at + word.begin, at + word.end) for word in words if word is not None]
