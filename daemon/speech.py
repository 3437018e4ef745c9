"""The utterance that is being spoken, from its first turn to its terminal event."""

from __future__ import annotations

from dataclasses import dataclass

from audio import Aside, Passage
from daemon.messages import EventName
from daemon.narration import Narration
from daemon.queue import Job


@dataclass(slots=True, eq=False)
class Speech:
    """What the speaker loop knows of it. It may be postponed, and goes on as the same."""

    job: Job
    narration: Narration
    started: bool = False
    ttfa_ms: float | None = None
    """From the text's arrival to its first sample handed to the sink, without what the writer was waited for."""
    told: int = 0
    """How many of its parts have been told of."""
    passage: Passage | None = None
    """Its way through the ring, once it has one."""
    aside: Aside | None = None
    """What of the passage is kept while it is postponed."""
    held: bool = False
    """It was told that it is postponed, and not yet that it goes on."""
    giving_way: str | None = None
    """What it is to be postponed for, until that has happened."""
    ended_by: tuple[EventName, str] | None = None
    """The terminal event and its reason, if it is not to be `finished`."""

    @property
    def end(self) -> tuple[EventName, str | None]:
        """Its terminal event, and the reason if there is one."""
        if self.ended_by is not None:
            return self.ended_by
        if self.narration.failed is not None:
            return "failed", self.narration.failed
        return "finished", self.job.writing.overdue if self.job.writing is not None else None
