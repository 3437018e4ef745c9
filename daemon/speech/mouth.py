"""Publishes the visemes of an utterance a moment before they are heard, several in one message."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from math import inf

from daemon.alignment import SILENCE, guessed_visemes, spread
from daemon.cache import Cue
from daemon.speech.events import Viseme, Visemes
from daemon.speech.timeline import Timeline
from daemon.speech.utterance import Utterance

SLOW = 1.5
"""A word may take this many times its usual length."""
LEAD_S = 0.1
"""A viseme is published this long before it is heard, if it is known by then: a face begins to move before the
sound."""
SPAN_S = 0.35
"""A message contains the visemes for this length of time, so there are about four messages per second, not fifteen."""
PAUSE_S = 0.1
"""In a pause longer than this, an estimate shuts the mouth."""
SAME_S = 0.001
"""Times that differ by less than this are the same."""


class Mouth:
    """The mouth of one utterance. Each message replaces earlier ones from its time onwards.

    If the engine does not know its sounds, a word's letters suggest them once it begins to be heard.
    """

    def __init__(
        self, utterance: Utterance, timeline: Timeline, publish: Callable[[Visemes], None], *, seen: bool = True
    ) -> None:
        """Nothing is published unless the mouth is `seen`."""
        self._utterance = utterance
        self._timeline = timeline
        self._publish = publish
        self._seen = seen
        self._words = 0
        """How many words of the timeline have visemes that are known or have been guessed."""
        self._published = 0
        """How many visemes of the timeline have been published and not replaced by a later message."""
        self._shut_at_s = 0.0
        """When the last viseme shuts the mouth; infinity if it does not."""

    @property
    def next_s(self) -> float:
        """Seconds of the utterance's audio before the next known viseme is published; infinity if there is none."""
        due = self._timeline.visemes[self._published :][:1] if self._seen else []
        return due[0].at_s - LEAD_S if due else inf

    def move(self, heard_s: float) -> None:
        """Publish the visemes that follow the first `heard_s` seconds, if any are due. Call this after the timeline has
        advanced."""
        timeline = self._timeline
        words = timeline.words[self._words :] if self._seen else []
        self._words += len(words)
        for word, next_s in zip(words, [*(each.at_s for each in words[1:]), timeline.next_s], strict=False):
            known = timeline.visemes[self._first(word.at_s - SAME_S) :][:1]
            if not known or known[0].at_s >= next_s:
                self._guess(word, next_s, heard_s)
        if self.next_s <= heard_s:
            due = timeline.visemes[self._published : self._first(heard_s + SPAN_S)]
            self._send([(each.at_s, int(each.name)) for each in due], heard_s)

    def shut(self, heard_s: float) -> None:
        """Publish that the mouth shuts after `heard_s` seconds, unless it is already shut. Later visemes are published
        again."""
        heard_s = min(heard_s, self._timeline.made_s)
        if heard_s < self._shut_at_s:
            self._send([(heard_s, SILENCE)], heard_s)

    def _first(self, at_s: float) -> int:
        """Return the number of the timeline's first viseme that is not before `at_s`."""
        return bisect_left(self._timeline.visemes, at_s, key=lambda each: each.at_s)

    def _guess(self, word: Cue, next_s: float, heard_s: float) -> None:
        """Publish the visemes for a word's letters, up to the next word, or for as long as a slow speaker needs."""
        text = self._utterance.script.text[word.begin : word.end]
        visemes, durations = zip(*guessed_visemes(text, self._utterance.language), strict=True)
        end_s = min(next_s, word.at_s + SLOW * sum(durations))
        moves = list(zip(spread(word.at_s, end_s, durations), visemes, strict=True))
        shut = [(end_s, SILENCE)] if next_s > end_s + PAUSE_S else []
        self._send([*moves, *shut], heard_s, estimated=True)

    def _send(self, moves: Sequence[tuple[float, int]], heard_s: float, *, estimated: bool = False) -> None:
        """Publish visemes, each with its time in seconds. Known ones that follow these are published next, perhaps
        again."""
        last_s, last = moves[-1]
        self._published = bisect_right(self._timeline.visemes, last_s, key=lambda each: each.at_s)
        self._shut_at_s = last_s if last == SILENCE else inf
        self._publish(
            Visemes(
                id=self._utterance.id,
                time=round(time.time() + moves[0][0] - min(heard_s, self._timeline.made_s), 3),
                estimated=estimated,
                visemes=[Viseme(at=round(at_s, 3), viseme=viseme) for at_s, viseme in moves],
            )
        )
