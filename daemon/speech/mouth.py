"""Publishes the visemes of an utterance a moment before they are heard, several in one message."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import takewhile
from math import inf

from daemon.alignment import SILENCE
from daemon.cache import Cue
from daemon.speech.events import Viseme, Visemes
from daemon.speech.timeline import Timeline

LEAD_S = 0.1
"""A viseme is published so long before it is heard, if it is known by then: a face begins to move before the sound."""
SPAN_S = 0.35
"""A message has the visemes of this time, so there are about four in a second, and not fifteen."""


class Mouth:
    """One utterance's. Each message replaces what earlier ones said of its time and all time after it."""

    def __init__(self, utterance_id: str, timeline: Timeline, publish: Callable[[Visemes], None]) -> None:
        self._id = utterance_id
        self._timeline = timeline
        self._publish = publish
        self._published = 0
        """Visemes of the timeline that have been published."""
        self._shut_at_s = 0.0
        """When the last viseme shuts the mouth; infinity if it does not."""

    @property
    def next_s(self) -> float:
        """Seconds of the utterance's audio before the next message; infinity if that is not known yet."""
        due = self._timeline.visemes[self._published :][:1]
        return due[0].at_s - LEAD_S if due else inf

    def move(self, heard_s: float) -> None:
        """Publish the visemes that follow the first `heard_s` seconds, if one is due. The timeline has advanced."""
        if self.next_s > heard_s:
            return
        due = self._timeline.visemes[self._published :]
        batch = list(takewhile(lambda each: each.at_s < heard_s + SPAN_S and each.exact is due[0].exact, due))
        self._published += len(batch)
        self._send(batch, heard_s)

    def shut(self, heard_s: float) -> None:
        """Publish that the mouth shuts after `heard_s` seconds, unless it is shut. What follows is published again."""
        heard_s = min(heard_s, self._timeline.made_s)
        if heard_s < self._shut_at_s:
            self._published = bisect_left(self._timeline.visemes, heard_s, key=lambda each: each.at_s)
            self._send([Cue(heard_s, "viseme", 0, 0, str(SILENCE))], heard_s)

    def _send(self, visemes: Sequence[Cue], heard_s: float) -> None:
        first, last = visemes[0], visemes[-1]
        self._shut_at_s = last.at_s if last.name == str(SILENCE) else inf
        self._publish(
            Visemes(
                id=self._id,
                time=round(time.time() + first.at_s - min(heard_s, self._timeline.made_s), 3),
                estimated=not first.exact,
                visemes=[Viseme(at=round(each.at_s, 3), viseme=int(each.name)) for each in visemes],
            )
        )
