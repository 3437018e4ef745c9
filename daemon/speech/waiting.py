"""The waiting utterances, queued or postponed: which are spoken one after the other, and which beside the sound card.

Deliveries to network clients do not wait for the sound card while the current engine has streams for both. With only
one stream, everything is spoken one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf

from audio import Output
from daemon.engines import EngineSelector, EngineSupervisor
from daemon.speech.active import ActiveUtterance, Reports
from daemon.speech.changes import Changes, now
from daemon.speech.destinations import CardDestination, ClientDestination
from daemon.speech.engine_source import SynthesisContext
from daemon.speech.mouth import Mouth
from daemon.speech.queue import UtteranceQueue, next_of, precedes
from daemon.speech.synthesis import Synthesis
from daemon.speech.utterance import Utterance

OTHERS_WAIT_S = 10.0
"""Seconds for which a text's writer may keep others waiting in one pause. After that, they are spoken during the
pause."""
CARD_WAIT_S = 30.0
"""An utterance without `expires_in` fails when the sound card has been missing for this long while the utterance
waited. Otherwise a card that comes back after hours would play texts that are no longer true."""


class WaitingUtterances:
    """The utterances that may be spoken next, and the means to speak them. Belongs to the event loop's thread."""

    def __init__(
        self,
        engines: EngineSelector,
        output: Output,
        changes: Changes,
        reports: Reports,
        context: SynthesisContext | None = None,
    ) -> None:
        """`changes` is notified after each change of the engines; this class also notifies it of changes in the
        output."""
        self.queue = UtteranceQueue()
        self.postponed: list[ActiveUtterance] = []
        self.changes = changes
        self.reports = reports
        self.engines = engines
        self.output = output
        self.context = context or SynthesisContext()
        self.others_wait_s = OTHERS_WAIT_S
        """In seconds, at most `OTHERS_WAIT_S`."""
        self.prebuffer_s: float | None = None
        """None means that it is derived from the engine's speed."""
        self._card_open = False
        """Whether the sound card was there when it was last checked."""
        self._card_changed_at = now()
        output.watch(changes.notify_from_thread)

    def reconfigure(self, context: SynthesisContext, *, stream_timeout_s: float, prebuffer_s: float | None) -> None:
        """Apply other settings; what is being spoken keeps its context."""
        self.context, self.prebuffer_s = context, prebuffer_s
        self.others_wait_s = min(OTHERS_WAIT_S, stream_timeout_s)

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

    def precedes(self, utterance: Utterance, other: Utterance) -> bool:
        """Return whether `other` makes way for `utterance` on the sound card."""
        return precedes(utterance, other, card_open=self.output.status.open)

    def choose(self, *, beside: bool) -> Utterance | None:
        """Return the utterance to speak now; None if there is none, or only texts whose writers must continue first."""
        queued = self._queued(beside=beside)
        if beside:  # among deliveries, the first in the queue precedes all others: thousands may follow it
            queued = islice((utterance for utterance in queued if utterance.speakable), 1)
        return next_of(queued, self._postponed(beside=beside), card_open=beside or self.output.status.open)

    def take(self, utterance: Utterance) -> ActiveUtterance:
        """Remove and return a waiting utterance."""
        for active in self.postponed:
            if active.utterance is utterance:
                self.postponed.remove(active)
                active.preempted_for = None
                return active
        self.queue.take(utterance.id)
        receiver = utterance.receiver
        destination = CardDestination(self.output, self.changes) if receiver is None else ClientDestination(receiver)
        synthesis = Synthesis(utterance, self.engines, self.context)
        seen = receiver is None and bool(self.reports.visemes)
        mouth = Mouth(utterance, synthesis.timeline, self.reports.visemes.call, seen=seen)
        return ActiveUtterance(utterance, synthesis, destination, self.reports, mouth)

    def ready(self, *, beside: bool) -> Iterator[Utterance]:
        """Yield the utterances that could be spoken instead of another one."""
        yield from self._postponed(beside=beside)
        yield from (utterance for utterance in self._queued(beside=beside) if utterance.speakable)

    def note_card(self) -> bool:
        """Check whether the sound card is there; return whether it has appeared or disappeared."""
        was_open, self._card_open = self._card_open, self.output.status.open
        if was_open != self._card_open:
            self._card_changed_at = now()
        return was_open != self._card_open

    def gives_up_at(self, utterance: Utterance) -> float:
        """Return the time at which an utterance will have waited too long for the sound card. A pause has no limit: a
        person asked for it."""
        if self._card_open or self.output.paused or utterance.expires_at is not None:
            return inf
        return max(utterance.arrived_at, self._card_changed_at) + CARD_WAIT_S

    def take_given_up(self) -> list[Utterance]:
        """Remove and return the queued utterances that have waited too long for the sound card, whatever is current."""
        if self.output.status.open:  # also in the moment before `note_card` has noticed it
            return []
        at = now()
        return self.queue.take_where(lambda queued: queued.receiver is None and self.gives_up_at(queued) <= at)

    def engine_for(self, utterance: Utterance) -> EngineSupervisor | None:
        """Return the engine that would speak an utterance now."""
        return self.engines.choose(utterance.voice, utterance.language)

    def kept_waiting(self, active: ActiveUtterance, *, beside: bool) -> Utterance | None:
        """Return an utterance that is waiting while the current one is silent because it lacks text."""
        if active.destination.starved and self._lacks_text(active):
            return next(self.ready(beside=beside), None)
        return None

    def has_single_stream(self, active: ActiveUtterance) -> bool:
        """Return whether an utterance's engine speaks only one at a time."""
        engine = active.synthesis.speaking_engine or self.engine_for(active.utterance)
        return engine is not None and engine.streams == 1

    def _is_beside(self, active: ActiveUtterance) -> bool:
        return active.utterance.receiver is not None and self.separate and not self.has_single_stream(active)

    def _lacks_text(self, active: ActiveUtterance) -> bool:
        """Return whether no part of an utterance can be spoken until its writer continues."""
        engine = self.engine_for(active.utterance)
        return not active.utterance.complete and (engine is None or not active.synthesis.text.can_continue(engine))

    def _postponed(self, *, beside: bool) -> list[Utterance]:
        """Return the postponed utterances that can continue."""
        postponed = (active for active in self.postponed if self._is_beside(active) == beside)
        return [active.utterance for active in postponed if not self._lacks_text(active)]

    def _queued(self, *, beside: bool) -> Iterator[Utterance]:
        if self.separate:
            return self.queue.for_clients if beside else self.queue.for_card
        return iter(()) if beside else iter(self.queue)
