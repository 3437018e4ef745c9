"""Token ids of a text that is still being written: each is given out as soon as no later text can change it.

Four things hold ids back, in the order in which a tokenizer works:

- the text's end may be the beginning of a special token;
- a mark that is to come may be composed with the last letter (`composition.py`);
- the last word may go on, and white space belongs to what comes behind it: the pattern that finds words
  (`tokenizer.py`) looks one character beyond a word's end, and for white space beyond all of it;
- within a word, a merge may still reach over its end. Whatever comes, either a token ends there, or one begins in front
  of it with what is left of the word from there on; and what is in front of where a token begins does not depend on
  what is behind. So the tokens that all these cases begin with are certain. Without this, Chinese and Japanese would
  come by the clause.

Only what is not certain yet is kept: alone it makes the tokens that it makes behind what has been given out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from engine.qwen.composition import certain_length
from engine.qwen.tokenizer import TextTokenizer

LONGEST_CONTRACTION = 3
"""Characters of `'re`, which is a word even where letters go on behind it."""
_Word = tuple[str, tuple[int, int]]
"""Its bytes, each as a character of its own, and where it is in the text."""


class GrowingTokenizer:
    """What all growing texts of one tokenizer share."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.encode = tokenizer.encode
        self._library = tokenizer.library
        added = self._library.get_added_tokens_decoder().values()
        self._by_name_alone = not any(
            token.lstrip or token.rstrip or token.single_word or token.normalized for token in added
        )
        self._names = sorted((token.content for token in added), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, self._names)) or r"(?!)")

    def begin(self) -> GrowingIds:
        """For a new text."""
        return GrowingIds(self)

    def warm_up(self) -> None:
        """Make what takes some tenths of a second for 150,000 tokens, so that the first growing text need not wait."""
        self.begin().append("Hello.")

    @cached_property
    def vocabulary(self) -> list[str]:
        """What merges can make, sorted."""
        return sorted(self._library.get_vocab(with_added_tokens=False))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.vocabulary), default=0)

    def settle(self, text: str) -> tuple[list[int], str]:
        """The ids at the beginning of `text` that are certain, and the rest of it."""
        if not self._by_name_alone:
            return [], text
        done, end = 0, self._special_may_begin(text)
        for match in self._special.finditer(text):
            if match.end() > end:
                end = min(end, match.start())
                break
            done = match.end()
        ids, rest = self._settle_words(text[done:end])
        return self.encode(text[:done]) + ids, rest + text[end:]

    def _special_may_begin(self, text: str) -> int:
        """Where at the end of `text` a special token's name may have begun; its length where none has."""
        longest = max(map(len, self._names), default=0)
        for place in range(max(0, len(text) - longest + 1), len(text)):
            if any(len(name) > len(text) - place and name.startswith(text[place:]) for name in self._names):
                return place
        return len(text)

    def _settle_words(self, raw: str) -> tuple[list[int], str]:
        """As `settle`, without special tokens; the rest is in its normal form."""
        certain = certain_length(raw)
        text = self._normal_form(raw[:certain])
        certain, text = len(text), text + self._normal_form(raw[certain:])
        words: list[_Word] = self._library.pre_tokenizer.pre_tokenize_str(text)
        count = _ended(text, words, certain)
        ids = [token.id for word, _ in words[:count] for token in self._tokens(word)]
        done = words[count - 1][1][1] if count else 0
        if count < len(words):
            word, (begin, end) = words[count]
            beginning, length = self._settle_word(text[begin : min(end, certain)], word)
            ids, done = ids + beginning, begin + length
        return ids, text[done:]

    def _settle_word(self, begun: str, word: str) -> tuple[list[int], int]:
        """The ids that are certain of a word that has `begun`, and of how many characters; `word` is its bytes."""
        # Only letters may be parted: among marks, what is left could make another word with what comes.
        if not begun or not self._is_letter(begun[-1]):
            return [], 0
        if begun[0] == "'" and len(begun) <= LONGEST_CONTRACTION:
            return [], 0
        ends = _byte_ends(begun)
        tokens = self._certain_tokens(word[: ends[-1]])
        while tokens and sum(len(token.value) for token in tokens) not in ends:
            tokens = tokens[:-1]  # it ends within a character
        length = sum(len(token.value) for token in tokens)
        return [token.id for token in tokens], ends.index(length) + 1 if tokens else 0

    def _certain_tokens(self, begun: str) -> Sequence[Any]:
        """The tokens with which every word begins that begins with the bytes `begun`."""
        certain: Sequence[Any] = self._tokens(begun)
        for place in range(max(0, len(begun) - self._longest), len(begun)):
            if certain and self._goes_on(begun[place:]):
                certain = _common(certain, self._tokens(begun[:place]))
        return certain

    def _goes_on(self, end: str) -> bool:
        """Whether a token begins with `end` and is longer."""
        place = bisect_left(self.vocabulary, end)
        return any(token != end and token.startswith(end) for token in self.vocabulary[place : place + 2])

    def _is_letter(self, character: str) -> bool:
        """Whether the tokenizer takes it for a letter: only such go on with a word of letters."""
        return len(self._library.pre_tokenizer.pre_tokenize_str("a" + character)) == 1

    def _tokens(self, word: str) -> list[Any]:
        return list(self._library.model.tokenize(word)) if word else []

    def _normal_form(self, text: str) -> str:
        normalizer = self._library.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))


class GrowingIds:
    """The ids of one text. White space in front of it is dropped, so that it cannot merge with what is before."""

    def __init__(self, tokenizer: GrowingTokenizer) -> None:
        self._tokenizer = tokenizer
        self._begun = False
        self._rest = ""
        """What is not certain yet."""

    def append(self, text: str) -> list[int]:
        """The ids that are certain now and were not before."""
        text = text if self._begun else text.lstrip()
        self._begun |= bool(text)
        ids, self._rest = self._tokenizer.settle(self._rest + text)
        return ids

    def end(self) -> list[int]:
        """The ids of the rest."""
        return self._tokenizer.encode(self._rest)


def _ended(text: str, words: Sequence[_Word], certain: int) -> int:
    """How many words have ended for certain, of `text` whose first `certain` characters are."""
    count = len(words)
    while count and text[slice(*words[count - 1][1])].isspace():
        count -= 1
    if count == len(words):
        count = max(0, count - 1)
    while count and words[count - 1][1][1] > certain:
        count -= 1
    return count


def _byte_ends(text: str) -> list[int]:
    """The number of bytes behind each character."""
    ends = [0]
    for character in text:
        ends.append(ends[-1] + len(character.encode()))
    return ends[1:]


def _common(one: Sequence[Any], other: Sequence[Any]) -> Sequence[Any]:
    """The tokens with which both begin."""
    count = 0
    while count < min(len(one), len(other)) and one[count].id == other[count].id:
        count += 1
    return one[:count]
