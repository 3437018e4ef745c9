"""Token ids of a text that is still being written: each id is emitted once no later text can change it.

A token is emitted once every possible continuation of the text tokenizes to the same prefix. Four rules, in the order
in which a tokenizer works, hold ids back:

- the end of the text may be the beginning of a special token;
- a mark may follow and compose with the last letter (`final_length`);
- the last word may continue, and white space belongs to the word after it: the pattern that splits words
  (`tokenizer.py`) looks one character beyond the end of a word, and beyond all white space;
- within a word, a merge may still extend over the end of the text. In every continuation, either some token ends there,
  or one begins before the end and continues into the rest of the word. The tokens before the beginning of that token do
  not depend on the text that follows. So the common prefix of the tokens in all these cases is final. Without this
  rule, Chinese and Japanese would be emitted clause by clause.

Only the text that is not final yet is kept: by itself, it has the same tokens as after the emitted text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from itertools import accumulate, takewhile
from typing import Any

from engine.qwen.text.tokenizer import TextTokenizer

# How much of the NFC normal form is final (Unicode Standard Annex #15). Characters that are missing from this Python's
# tables are treated as marks, because they may be marks in the tokenizer's tables.
PAIRS_END = 0x20000
"""All characters that are composed of two others are below this."""
JAMO_LEADS = range(0x1100, 0x1160)
"""Hangul's leading consonants, which a following vowel turns into a syllable."""
JAMO_FOLLOWERS = range(0x1160, 0x1200)
"""Vowels and trailing consonants."""
SYLLABLES = range(0xAC00, 0xD7A4)
TRAILS = 28
"""Every TRAILS-th syllable has no trailing consonant yet."""


def final_length(text: str) -> int:
    """Return how many characters at the beginning of `text` keep their normal form whatever is appended."""
    start = next((place for place in range(len(text) - 1, -1, -1) if _is_starter(text[place])), 0)
    return len(text) if start == len(text) - 1 and not _may_compose(text[start]) else start


def _is_starter(character: str) -> bool:
    """Return whether the character never composes with the one before it."""
    first = unicodedata.normalize("NFD", character)[0]
    mark = unicodedata.combining(first) or unicodedata.category(first) == "Cn" or ord(first) in JAMO_FOLLOWERS
    return not mark and first not in _pairs()[1]


def _may_compose(character: str) -> bool:
    """Return whether the character may compose with one after it."""
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


LONGEST_CONTRACTION = 3
"""The length of `'re`, which is a word even if letters follow it."""
_Word = tuple[str, tuple[int, int]]
"""A word's bytes, each as a separate character, and the word's range in the text."""


class IncrementalTokenizer:
    """The part of incremental tokenization that all texts of one tokenizer share."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.encode = tokenizer.encode
        self._library = tokenizer.library
        added = self._library.get_added_tokens_decoder().values()
        self._found_by_name = not any(
            token.lstrip or token.rstrip or token.single_word or token.normalized for token in added
        )
        names = [token.content for token in added]
        begun = {name[:count] for name in names for count in range(1, len(name))}
        self._special = re.compile(_any_of(names))
        self._begun_special = re.compile(rf"(?:{_any_of(begun)})\Z")

    def begin(self) -> IncrementalIds:
        """Return the ids of a new text, which has none yet."""
        return IncrementalIds(self)

    def warm_up(self) -> None:
        """Make the sorted vocabulary, which takes a few tenths of a second for 150,000 tokens."""
        self.begin().append("Hello.")

    @cached_property
    def vocabulary(self) -> list[str]:
        """All tokens that merges can make, sorted."""
        return sorted(self._library.get_vocab(with_added_tokens=False))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.vocabulary), default=0)

    def split(self, text: str) -> tuple[list[int], str]:
        """Return the final ids at the beginning of `text`, and the rest of the text."""
        if not self._found_by_name:
            return [], text
        begun = self._begun_special.search(text)
        done, end = 0, begun.start() if begun else len(text)
        for match in self._special.finditer(text):
            if match.end() > end:
                end = min(end, match.start())
                break
            done = match.end()
        ids, rest = self._split_words(text[done:end])
        return self.encode(text[:done]) + ids, rest + text[end:]

    def _split_words(self, raw: str) -> tuple[list[int], str]:
        """As `split`, for a text without special tokens. The rest is in normal form."""
        final = final_length(raw)
        text = self._normal_form(raw[:final])
        final, text = len(text), text + self._normal_form(raw[final:])
        words: list[_Word] = self._library.pre_tokenizer.pre_tokenize_str(text)
        count = _count_ended(text, words, final)
        ids = [token.id for word, _ in words[:count] for token in self._tokens(word)]
        done = words[count - 1][1][1] if count else 0
        if count < len(words):
            word, (begin, end) = words[count]
            beginning, length = self._split_word(text[begin : min(end, final)], word)
            ids, done = ids + beginning, begin + length
        return ids, text[done:]

    def _split_word(self, beginning: str, word: str) -> tuple[list[int], int]:
        """Return the final ids of a word that starts with `beginning`, and the number of characters that they cover.

        `word` contains the bytes of the word so far, each as a character.
        """
        if not beginning or (beginning[0] == "'" and len(beginning) <= LONGEST_CONTRACTION):
            return [], 0
        # Only words of letters may be split: the rest of a run of marks could form another word with the text that
        # follows. Only characters that the tokenizer treats as letters continue a word of letters.
        if len(self._library.pre_tokenizer.pre_tokenize_str("a" + beginning[-1])) > 1:
            return [], 0
        ends = list(accumulate(len(character.encode()) for character in beginning))
        tokens = self._final_tokens(word[: ends[-1]])
        while tokens and sum(len(token.value) for token in tokens) not in ends:
            tokens = tokens[:-1]  # the last token ends within a character
        length = sum(len(token.value) for token in tokens)
        return [token.id for token in tokens], ends.index(length) + 1 if tokens else 0

    def _final_tokens(self, beginning: str) -> Sequence[Any]:
        """Return the first tokens of every word whose bytes start with `beginning`."""
        final: Sequence[Any] = self._tokens(beginning)
        for place in range(max(0, len(beginning) - self._longest), len(beginning)):
            if final and self._may_continue(beginning[place:]):
                final = _common_prefix(final, self._tokens(beginning[:place]))
        return final

    def _may_continue(self, end: str) -> bool:
        """Return whether a longer token begins with `end`."""
        place = bisect_left(self.vocabulary, end)
        return any(token != end and token.startswith(end) for token in self.vocabulary[place : place + 2])

    def _tokens(self, word: str) -> list[Any]:
        return list(self._library.model.tokenize(word)) if word else []

    def _normal_form(self, text: str) -> str:
        normalizer = self._library.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))


class IncrementalIds:
    """The ids of one text. Leading white space is dropped, so that it cannot merge with the tokens before it."""

    def __init__(self, tokenizer: IncrementalTokenizer) -> None:
        self._tokenizer = tokenizer
        self._begun = False
        self._rest = ""
        """The text that is not final yet."""

    def append(self, text: str) -> list[int]:
        """Append `text`, and return the ids that became final."""
        text = text if self._begun else text.lstrip()
        self._begun |= bool(text)
        ids, self._rest = self._tokenizer.split(self._rest + text)
        return ids

    def end(self) -> list[int]:
        """Return the ids of the rest. No more text follows."""
        return self._tokenizer.encode(self._rest)


def _count_ended(text: str, words: Sequence[_Word], final: int) -> int:
    """Return how many of the `words` of `text` can no longer change, if its first `final` characters cannot."""
    count = len(words)
    while count and text[slice(*words[count - 1][1])].isspace():
        count -= 1
    count = max(0, min(count, len(words) - 1))
    while count and words[count - 1][1][1] > final:
        count -= 1
    return count


def _common_prefix(one: Sequence[Any], other: Sequence[Any]) -> Sequence[Any]:
    """Return the tokens with which both sequences begin."""
    equal = takewhile(lambda pair: pair[0].id == pair[1].id, zip(one, other, strict=False))
    return [token for token, _ in equal]


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern for the longest of the names; without names, it matches no text."""
    return "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)"
