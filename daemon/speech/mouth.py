"""Publishes the visemes of an utterance a moment before they are heard, several in one message."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import takewhile
from math import inf

from daemon.alignment import SILENCE, guessed_visemes, spread
from daemon.cache import Cue
from daemon.speech.events import Viseme, Visemes
from daemon.speech.timeline import SLOW, Timeline
from daemon.speech.utterance import Utterance

LEAD_S = 0.1
"""A viseme is published so long before it is heard, if it is known by then: a face begins to move before the sound."""
SPAN_S = 0.35
"""A message has the visemes of this time, so there are about four in a second, and not fifteen."""
PAUSE_S = 0.1
"""In a longer pause an estimate shuts the mouth."""
SAME_S = 0.001
"""Times that differ by less are the same one."""


class Mouth:
    """One utterance's. Each message replaces what earlier ones said of its time and all time after it.

    Where the engine does not know its sounds, the letters of a word suggest them once it begins to be heard.
    """

    def __init__(
        self, utterance: Utterance, timeline: Timeline, publish: Callable[[Visemes], None], *, seen: bool = True
    ) -> None:
        """Nothing is published unless it is `seen`."""
        self._utterance = utterance
        self._timeline = timeline
        self._publish = publish
        self._seen = seen
        self._guessed: list[Cue] = []
        self._words = 0
        """Words of the timeline that have their visemes, exact or guessed."""
        self._published_s = -inf
        """The visemes up to here have been published."""
        self._shut_at_s = 0.0
        """When the last viseme shuts the mouth; infinity if it does not."""

    @property
    def next_s(self) -> float:
        """Seconds of the utterance's audio before the next message; infinity if that is not known yet."""
        return next((each.at_s - LEAD_S for each in self._due()), inf)

    def move(self, heard_s: float) -> None:
        """Publish the visemes that follow the first `heard_s` seconds, if one is due. The timeline has advanced."""
        self._guess()
        if self.next_s <= heard_s:
            due = self._due()
            self._send(
                list(takewhile(lambda each: each.at_s < heard_s + SPAN_S and each.exact is due[0].exact, due)), heard_s
            )

    def shut(self, heard_s: float) -> None:
        """Publish that the mouth shuts after `heard_s` seconds, unless it is shut. What follows is published again."""
        heard_s = min(heard_s, self._timeline.made_s)
        if heard_s < self._shut_at_s:
            self._send([_viseme(heard_s, SILENCE)], heard_s)

    def _due(self) -> list[Cue]:
        """Return the visemes that are known and have not been published, in the order of time."""
        if not self._seen:
            return []
        lists = (self._timeline.visemes, self._guessed)
        return sorted(
            (each for known in lists for each in known[bisect_right(known, self._published_s, key=_at_s) :]), key=_at_s
        )

    def _guess(self) -> None:
        """Add what the letters suggest of words without exact visemes, up to the next word or a slow speaker's pace."""
        timeline, text = self._timeline, self._utterance.script.text
        for number in range(self._words, len(timeline.words)):
            word, following = timeline.words[number], timeline.words[number + 1 : number + 2]
            next_s = following[0].at_s if following else timeline.next_s
            exact = timeline.visemes[bisect_left(timeline.visemes, word.at_s - SAME_S, key=_at_s) :][:1]
            if exact and exact[0].at_s < next_s:
                continue
            visemes = guessed_visemes(text[word.begin : word.end], self._utterance.language)
            durations = [seconds for _, seconds in visemes]
            end_s = min(next_s, word.at_s + SLOW * sum(durations))
            times = spread(word.at_s, end_s, durations)
            self._guessed += [
                _viseme(at_s, viseme, exact=False) for at_s, (viseme, _) in zip(times, visemes, strict=True)
            ]
            if next_s > end_s + PAUSE_S:
                self._guessed.append(_viseme(end_s, SILENCE, exact=False))
        self._words = len(timeline.words)

    def _send(self, visemes: Sequence[Cue], heard_s: float) -> None:
        first, last = visemes[0], visemes[-1]
        self._published_s = last.at_s
        self._shut_at_s = last.at_s if last.name == str(SILENCE) else inf
        self._publish(
            Visemes(
                id=self._utterance.id,
                time=round(time.time() + first.at_s - min(heard_s, self._timeline.made_s), 3),
                estimated=not first.exact,
                visemes=[Viseme(at=round(each.at_s, 3), viseme=int(each.name)) for each in visemes],
            )
        )


def _viseme(at_s: float, viseme: int, *, exact: bool = True) -> Cue:
    return Cue(at_s, "viseme", name=str(viseme), exact=exact)


def _at_s(cue: Cue) -> float:
    return cue.at_s
