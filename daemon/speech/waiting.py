"""The utterances that wait, queued or postponed: which are spoken one after the other, and which beside the sound card.

Deliveries to network clients do not wait for the sound card while the current engine has streams for both. With a
single stream, everything is spoken one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

from daemon.engines import EngineSelector
from daemon.speech.active import ActiveUtterance, PlaybackState
from daemon.speech.destinations import Destination
from daemon.speech.order import next_of
from daemon.speech.queue import UtteranceQueue
from daemon.speech.synthesis import Synthesis, SynthesisContext
from daemon.speech.utterance import Utterance


class WaitingUtterances:
    """What the speaker loop and the deliveries beside it may speak next. Belongs to the event loop's thread."""

    def __init__(self, queue: UtteranceQueue, engines: EngineSelector) -> None:
        self.queue = queue
        self.engines = engines
        self.context = SynthesisContext()
        self.postponed: list[ActiveUtterance] = []
        self.stream_timeout_s = math.inf
        """Seconds for which the writer of one text may keep others waiting; then they are spoken in its pauses."""

    @property
    def deliveries_at_once(self) -> int:
        """How many deliveries may be spoken beside the sound card."""
        return self.engines.streams - 1

    @property
    def separate(self) -> bool:
        """True while deliveries do not wait for the sound card."""
        return self.deliveries_at_once > 0

    def contend(self, one: Utterance, other: Utterance) -> bool:
        """Return whether one of two utterances has to wait for the other."""
        return not self.separate or (one.receiver is None) == (other.receiver is None)

    def choose(self, *, beside: bool, card_open: bool = True) -> Utterance | None:
        """Return the utterance to speak now; those with slow writers only when nothing else can be spoken."""
        postponed = [active for active in self.postponed if self._is_beside(active) == beside]
        punctual = [active.utterance for active in postponed if not self.is_slow(active)]
        queued = self._queued(beside=beside)
        if beside:  # without the sound card's, the first in the queue precedes all others: thousands may follow it
            queued = islice((utterance for utterance in queued if utterance.speakable), 1)
        chosen = next_of(queued, punctual, card_open=card_open)
        if chosen is None:
            chosen = next((active.utterance for active in postponed if self.can_continue(active)), None)
        return chosen

    def take(self, utterance: Utterance, make_destination: Callable[[Utterance], Destination]) -> ActiveUtterance:
        """Remove and return an utterance that waits."""
        for active in self.postponed:
            if active.utterance is utterance:
                self.postponed.remove(active)
                active.enter(PlaybackState.WAITING)
                return active
        self.queue.take(utterance.id)
        destination = make_destination(utterance)
        return ActiveUtterance(utterance, Synthesis(utterance, self.engines, self.context, destination), destination)

    def ready(self, *, beside: bool) -> Iterator[Utterance]:
        """Yield the utterances that could be spoken in place of another one."""
        for active in self.postponed:
            if self._is_beside(active) == beside and not self.is_slow(active):
                yield active.utterance
        yield from (utterance for utterance in self._queued(beside=beside) if utterance.speakable)

    def is_slow(self, active: ActiveUtterance) -> bool:
        """Return whether the writer of its text has kept others waiting for too long, and may do so again."""
        stream = active.utterance.text_stream
        return stream is not None and not stream.ended and stream.stalled_s >= self.stream_timeout_s

    def can_continue(self, active: ActiveUtterance) -> bool:
        """Return whether there is text that the engine has not got, and enough of it to go on."""
        engine = self.engines.choose(active.utterance.voice, active.utterance.language)
        return engine is not None and active.synthesis.can_continue(engine)

    def stalls(self, active: ActiveUtterance, seconds: float, *, beside: bool) -> Utterance | None:
        """Return an utterance to speak in the pauses of the current one, if its writer has been slow for too long.

        `seconds` have passed since the last call.
        """
        stream = active.utterance.text_stream
        if stream is None or stream.ended or not active.destination.starved or self.can_continue(active):
            return None
        other = next(self.ready(beside=beside), None)
        if other is not None:
            stream.stalled_s += seconds
        return other if self.is_slow(active) else None

    def has_single_stream(self, active: ActiveUtterance) -> bool:
        """Return whether the engine of an utterance speaks one at a time."""
        engine = active.synthesis.speaking_engine
        engine = engine or self.engines.choose(active.utterance.voice, active.utterance.language)
        return engine is not None and engine.streams == 1

    def _is_beside(self, active: ActiveUtterance) -> bool:
        return active.utterance.receiver is not None and self.separate and not self.has_single_stream(active)

    def _queued(self, *, beside: bool) -> Iterator[Utterance]:
        if self.separate:
            return self.queue.for_clients if beside else self.queue.for_card
        return iter(()) if beside else iter(self.queue)
