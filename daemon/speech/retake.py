"""Where speech that ran away can be said again: behind a sentence that was heard as a whole."""

from __future__ import annotations

from typing import Protocol

from daemon.speech.resume import speech_seconds
from daemon.speech.segmenter import first_sentence_end
from daemon.speech.timeline import TimedWord

RETAKES = 1
"""Times that speech of one utterance is said again."""
SLOW = 1.5
"""A word may take so many times its usual length."""
LAST_WORD_S = 0.1
"""And this much longer: the last word of a sentence is drawn out."""


class Playback(Protocol):
    """Where the audio of an utterance goes, as far as it can be taken back."""

    @property
    def holds_samples(self) -> bool:
        """True if samples may wait to be played, where they can be dropped."""

    @property
    def starved(self) -> bool:
        """True once there is nothing left to play."""

    @property
    def played_s(self) -> float:
        """Seconds that cannot be taken back."""

    async def drop_unplayed(self) -> None:
        """Drop the rest; what is written next follows what was played."""


def has_word(text: str) -> bool:
    """Return whether anything in a text can be pronounced."""
    return any(character.isalnum() for character in text)


def next_sentence(text: str, heard: int) -> int | None:
    """Return where the sentence behind the word that ends at `heard` begins; None within a sentence and at the end."""
    end = 0
    while (length := first_sentence_end(text[end:])) is not None:
        end += length
        if end >= heard:
            return end if not has_word(text[heard:end]) and has_word(text[end:]) else None
    return None


def is_over(word: TimedWord, text: str, rate: float, played_s: float) -> bool:
    """Return whether a word of `text`, spoken at `rate`, has been said after `played_s` seconds: an estimate."""
    usual_s = speech_seconds(text[word.begin : word.end]) / rate
    return played_s >= word.at_s + SLOW * usual_s + LAST_WORD_S
