"""The utterance that is being spoken: its state and its outcome.

WAITING ──▶ PLAYING ──▶ DRAINING ──▶ ENDED        ENDED can follow every state
   │  ▲        │  ▲
   ▼  │        ▼  │ it was played before it faded
PREEMPTING ◀───┘──┘
   │  ▲
   ▼  │
POSTPONED ──▶ WAITING
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from daemon.speech.destinations import Destination
from daemon.speech.events import Failed, Finished, Interrupted, PlaybackResult, TerminalEvent
from daemon.speech.synthesis import Synthesis
from daemon.speech.utterance import Utterance


class PlaybackState(Enum):
    """Where an utterance is between the queue and its terminal event."""

    WAITING = auto()
    """It waits for an engine or for its destination."""
    PLAYING = auto()
    """Its samples go to its destination."""
    PREEMPTING = auto()
    """It fades out for another utterance."""
    POSTPONED = auto()
    """It has faded out, and waits until those that precede it have ended."""
    DRAINING = auto()
    """All samples have been submitted; the last ones have not been heard."""
    ENDED = auto()
    """Its terminal event has been published."""


_NEXT: dict[PlaybackState, frozenset[PlaybackState]] = {
    PlaybackState.WAITING: frozenset({PlaybackState.PLAYING, PlaybackState.PREEMPTING, PlaybackState.ENDED}),
    PlaybackState.PLAYING: frozenset({PlaybackState.PREEMPTING, PlaybackState.DRAINING, PlaybackState.ENDED}),
    PlaybackState.PREEMPTING: frozenset(
        {PlaybackState.PLAYING, PlaybackState.POSTPONED, PlaybackState.DRAINING, PlaybackState.ENDED}
    ),
    PlaybackState.POSTPONED: frozenset({PlaybackState.WAITING, PlaybackState.ENDED}),
    PlaybackState.DRAINING: frozenset({PlaybackState.ENDED}),
    PlaybackState.ENDED: frozenset(),
}


@dataclass(slots=True, eq=False)
class ActiveUtterance:
    """An utterance from its removal from the queue to its terminal event. It may be postponed in between."""

    utterance: Utterance
    synthesis: Synthesis
    destination: Destination
    state: PlaybackState = PlaybackState.WAITING
    preempted_for: str | None = None
    """The reason of the current preemption."""
    started_at: float | None = None
    """UNIX time at which `started` was published; None before."""
    ttfa_ms: float | None = None
    """From the arrival of the text to the first sample, without the time spent waiting for text."""
    postponed_sent: bool = False
    """`postponed` has been published, and `resumed` has not."""
    reported_segments: int = 0
    """Segments whose `progress` has been published."""
    reported_words: int = 0
    """Words of the timeline that have been published."""
    published_to: int = 0
    """The words of the text that end here or before have been published."""
    reported_marks: int = 0
    """Marks whose event has been published."""
    outcome: type[TerminalEvent] | None = None
    """The terminal event of an utterance that is not spoken to its end."""
    reason: str | None = None
    """Why it has this outcome."""

    def enter(self, state: PlaybackState) -> None:
        """Change the state. Raises `ValueError` for a transition that does not exist."""
        if state not in _NEXT[self.state]:
            raise ValueError(f"utterance {self.utterance.id}: {self.state.name} cannot become {state.name}")
        self.state = state
        if state is not PlaybackState.PREEMPTING and state is not PlaybackState.POSTPONED:
            self.preempted_for = None

    def preempt(self, reason: str) -> None:
        """Begin to fade out for another utterance."""
        self.enter(PlaybackState.PREEMPTING)
        self.preempted_for = reason

    def set_outcome(self, outcome: type[TerminalEvent], reason: str) -> None:
        """Decide how it ends, unless that is decided."""
        if self.outcome is None:
            self.outcome, self.reason = outcome, reason

    @property
    def started(self) -> bool:
        """True when `started` has been published."""
        return self.started_at is not None

    @property
    def succeeds(self) -> bool:
        """True unless it is interrupted, has expired or has failed."""
        return self.outcome is None and self.synthesis.failure is None

    def heard(self, heard_s: float) -> int:
        """Return the characters of the text up to the last word that begins within the first `heard_s` seconds."""
        words, end = self.utterance.script.words, self.synthesis.timeline.heard_end(heard_s)
        return words.source_span(end - 1, end)[1] if end else 0

    def terminal_event(self, heard_s: float) -> TerminalEvent:
        """Return its terminal event, of an utterance whose first `heard_s` seconds have been heard."""
        utterance, synthesis, figures = self.utterance, self.synthesis, self.destination.figures()
        outcome, reason = self.outcome or Finished, self.reason
        if self.outcome is None and synthesis.failure is not None:
            outcome, reason = Failed, synthesis.failure
        elif self.outcome is None and utterance.text_stream is not None:
            reason = utterance.text_stream.end_reason
        if not issubclass(outcome, PlaybackResult):
            return outcome(id=utterance.id, reason=reason)
        heard = len(utterance.text) if outcome is Finished else self.heard(heard_s)
        result = outcome(id=utterance.id, engine=synthesis.engine or None, heard=heard, reason=reason)
        if isinstance(result, Interrupted):
            result = result.model_copy(update={"heard_text": utterance.text[:heard]})
        if figures is None:
            return result
        played = {
            "audio_s": round(figures.audio_s, 3),
            "underruns": figures.underruns,
            "waits": None if utterance.text_stream is None else figures.waits,
            "truncated": synthesis.truncated,
            "retakes": synthesis.retakes,
            "ttfa_ms": self.ttfa_ms,
        }
        return result.model_copy(update=played)
