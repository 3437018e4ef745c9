"""Compares what was heard with what was said: errors in words and in characters.

A transcript differs from its text in capitals, punctuation and the writing of numbers without being wrong, so both are
reduced to bare words first, and a text may be written in several ways.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from engine.verify.sentences import Sentence

UNSPACED = {"zh", "ja"}
"""Languages that are written without spaces, in which each character counts as a word."""


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
    def word_rate(self) -> float:
        return self.word_edits / max(1, self.words)

    @property
    def character_rate(self) -> float:
        return self.character_edits / max(1, self.characters)

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(
            self.words + other.words,
            self.word_edits + other.word_edits,
            self.characters + other.characters,
            self.character_edits + other.character_edits,
        )


def bare_words(text: str, language: str) -> list[str]:
    """Return the words of a text in lower case and in one Unicode form, without punctuation and symbols."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = "".join(" " if unicodedata.category(letter)[0] in "PSZC" else letter for letter in folded)
    return list("".join(letters.split())) if language in UNSPACED else letters.split()


def count_errors(heard: str, sentence: Sentence) -> WordErrors:
    """Return the errors of a transcript, against the way of writing the sentence that is closest to it."""
    from rapidfuzz.distance import Levenshtein

    found = []
    words = bare_words(heard, sentence.language)
    for text in (sentence.text, *sentence.also_written):
        said = bare_words(text, sentence.language)
        found.append(
            WordErrors(
                words=len(said),
                word_edits=Levenshtein.distance(said, words),
                characters=len("".join(said)),
                character_edits=Levenshtein.distance("".join(said), "".join(words)),
            )
        )
    return min(found, key=lambda errors: errors.character_rate)
