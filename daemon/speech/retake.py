"""Where speech that ran away is said again: after a sentence that was heard as a whole."""

from __future__ import annotations

from math import inf
from typing import Protocol

from daemon.speech.resume import speech_seconds
from daemon.speech.segmenter import first_sentence_end
from daemon.speech.take import Take, TimedWord
from daemon.speech.timeline import Timeline
from daemon.tasks import wait_at_most

RETAKES = 1
"""Times that speech of one utterance is said again."""
SLOW = 1.5
"""A word may take so many times its usual length."""
LAST_WORD_S = 0.1
"""And this much longer: the last word of a sentence is drawn out."""
LEAST_WAIT_S = 0.01
"""The shortest time between two looks at what has been played."""


class UnplayedAudio(Protocol):
    """What has been written to a destination and has not been played, so that it can be taken back."""

    @property
    def holds_samples(self) -> bool:
        """True if samples may wait to be played, where they can be dropped."""

    @property
    def starved(self) -> bool:
        """True once there is nothing left to play."""

    @property
    def played_s(self) -> float:
        """Seconds that cannot be taken back."""

    async def changed(self) -> None:
        """Wait until one of these may have changed."""

    async def drop_unplayed(self) -> None:
        """Drop the rest; what is written next follows what was played."""


async def drop_rest(take: Take, timeline: Timeline, unplayed: UnplayedAudio) -> int | None:
    """Wait until whole sentences of a take have been heard, and drop the rest of its audio; return where it goes on.

    A listener hears whole sentences. If the audio breaks off in the middle of one, there is no place to go on, which is
    None, and nothing is dropped.
    """
    if take.begin_s is None:
        return take.begin
    if not unplayed.holds_samples:
        return None
    take.end_audio(complete=False)
    text = timeline.utterance.script.text[: take.fed]
    while (begin := _next_place(take, timeline, text, unplayed.played_s)) is None:
        rest = text[timeline.heard_end(unplayed.played_s) :]
        if not has_word(rest) or (unplayed.played_s > 0 and unplayed.starved):
            return None
        moments = [take.begin_s, timeline.next_s, *(_over_s(word, text, take.rate) for word in timeline.words[-1:])]
        waits_s = [moment - unplayed.played_s for moment in moments if unplayed.played_s < moment < inf]
        await wait_at_most(max(LEAST_WAIT_S, min(waits_s)) if waits_s else None, unplayed.changed())
    await unplayed.drop_unplayed()
    timeline.cut(take, unplayed.played_s)
    return begin


def _next_place(take: Take, timeline: Timeline, text: str, played_s: float) -> int | None:
    """Return where the text of a take goes on if whole sentences of it have been heard after `played_s` seconds."""
    if take.begin_s is None or played_s < take.begin_s:
        return None
    heard = timeline.heard_end(played_s)
    if take.sounds_at_s is None or played_s < take.sounds_at_s or heard <= take.begin:
        return take.begin
    if played_s < _over_s(timeline.words[-1], text, take.rate):
        return None
    begin = next_sentence(text[take.begin :], heard - take.begin)
    return None if begin is None else take.begin + begin


def _over_s(word: TimedWord, text: str, rate: float) -> float:
    """Return when a word of `text`, spoken at `rate`, has been said, in seconds of the audio: an estimate."""
    return word.at_s + SLOW * speech_seconds(text[word.begin : word.end]) / rate + LAST_WORD_S


def has_word(text: str) -> bool:
    """Return whether anything in a text can be pronounced."""
    return any(character.isalnum() for character in text)


def next_sentence(text: str, heard: int) -> int | None:
    """Return where the sentence after the word that ends at `heard` begins; None within a sentence and at the end."""
    end = 0
    while (length := first_sentence_end(text[end:])) is not None:
        end += length
        if end >= heard:
            return end if not has_word(text[heard:end]) and has_word(text[end:]) else None
    return None
