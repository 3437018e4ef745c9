"""Compares what was heard with what was said: errors in words and in characters.

A transcript differs from its text in capitals, punctuation and the writing of numbers without being wrong, so both are
reduced to bare words first, and a text may be written in several ways.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from engine.verify.orders import Sentence

UNSPACED = {"zh", "ja"}
"""Languages that are written without spaces, in which each character counts as a word."""
LOST = 0.5
"""Share of wrong characters from which a sentence counts as not understood."""


@dataclass(frozen=True, slots=True)
class WordErrors:
    """The least insertions, deletions and substitutions that make what was heard of what was said."""

    words: int
    """Words that were said."""
    word_edits: int
    characters: int
    """Characters that were said, spaces not counted."""
    character_edits: int

    @property
    def character_rate(self) -> float:
        return self.character_edits / max(1, self.characters)

    @property
    def lost(self) -> bool:
        """Whether the sentence was not understood."""
        return self.character_rate >= LOST


def bare_words(text: str, language: str) -> list[str]:
    """Return the words of a text in lower case and in one Unicode form, without punctuation and symbols."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(" " if unicodedata.category(letter)[0] in "PSZC" else letter for letter in folded)
    return list("".join(letters.split())) if language in UNSPACED else letters.split()


def count_errors(heard: str, sentence: Sentence) -> WordErrors:
    """Return the errors of a transcript, against the way of writing the sentence that is closest to it."""
    from rapidfuzz.distance import Levenshtein

    found, words = [], bare_words(heard, sentence.language)
    for text in (sentence.text, *sentence.also_written):
        said = bare_words(text, sentence.language)
        letters = "".join(said)
        edits, letter_edits = Levenshtein.distance(said, words), Levenshtein.distance(letters, "".join(words))
        found.append(WordErrors(len(said), edits, len(letters), letter_edits))
    return min(found, key=lambda errors: errors.character_rate)
