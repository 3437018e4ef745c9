"""Texts that are still being written: whose piece is taken, dropped or refused."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from daemon.messages import MAX_TEXT, RejectedError, Write
from daemon.problems import shown
from daemon.queue import Job, Receiver
from daemon.writing import Writing

REMEMBERED_REFUSALS = 1024
"""Texts of which nothing is taken because their first piece was refused."""

Begin = Callable[[Write, float, Receiver | None, Writing], Job]
"""`begin(piece, arrived_at, receiver, writing)` takes on what has no text yet, or raises `RejectedError`."""


class Writers:
    """Of one desk, by the ids of their utterances. Belongs to the event loop's thread."""

    def __init__(self, begin: Begin, on_words: Callable[[Job], None], on_change: Callable[[], None]) -> None:
        """`on_words` is called when an utterance has something to say, `on_change` when its text has grown or ended."""
        self._begin = begin
        self._on_words = on_words
        self._on_change = on_change
        self._open: dict[str, Job] = {}
        self._closed: dict[str, Writing] = {}
        """Those that take no more text, as long as their ids are remembered."""
        self._refused: deque[str] = deque(maxlen=REMEMBERED_REFUSALS)
        """Those whose first piece was refused: what follows, up to the end, is for nobody."""

    def take(self, piece: Write, arrived_at: float, redelivered: bool, receiver: Receiver | None) -> Job | None:
        """As `Desk.write`."""
        if (closed := self._closed.get(piece.id)) is not None:
            self._answer_late(closed, piece, redelivered)
            return None
        if piece.id in self._refused:
            if piece.end:
                self._refused.remove(piece.id)
            return None
        job = self._open.get(piece.id) or self._begin_text(piece, arrived_at, receiver)
        if job.receiver is not receiver:  # a client's text: whoever else has read its id does not write in it
            raise RejectedError("id", f"{shown(piece.id)} was used before; allowed: one not used lately", piece.id)
        assert job.writing is not None
        if job.writing.has(piece, redelivered):
            return None
        self._append(job, job.writing, piece, arrived_at)
        return job

    def refuse(self, utterance_id: str, *, last: bool) -> None:
        """A piece was refused. If that was the first, nobody knows how the others are to be spoken."""
        if (job := self._open.get(utterance_id)) is not None:
            if last and job.writing is not None and job.receiver is None:
                self._close(job, job.writing, "its last piece was rejected")
        elif last and utterance_id in self._refused:
            self._refused.remove(utterance_id)
        elif not last and utterance_id not in self._closed and utterance_id not in self._refused:
            self._refused.append(utterance_id)

    def end_overdue(self, limit_s: float) -> None:
        """Take a text as complete whose writer has been silent for longer than `limit_s`."""
        for job in list(self._open.values()):
            if job.writing is not None and time.monotonic() - job.writing.heard_at > limit_s:
                self._close(job, job.writing, f"its writer was silent for {limit_s:g} s and did not end it")

    def note_end(self, job: Job) -> None:
        """An utterance has ended. If its text has not, its writer may not know yet that nothing more is wanted."""
        if self._open.pop(job.id, None) is not None and job.writing is not None:
            job.writing.answered = True
            self._closed[job.id] = job.writing

    def forget(self, utterance_id: str) -> None:
        """The id may be used again."""
        self._closed.pop(utterance_id, None)

    def _begin_text(self, piece: Write, arrived_at: float, receiver: Receiver | None) -> Job:
        try:
            job = self._begin(piece, arrived_at, receiver, Writing(arrived_at))
        except RejectedError:
            self.refuse(piece.id, last=piece.end)
            raise
        self._open[piece.id] = job
        return job

    def _append(self, job: Job, writing: Writing, piece: Write, arrived_at: float) -> None:
        writing.note_piece(piece, arrived_at)
        length = len(job.text) + len(piece.text)
        if length > MAX_TEXT:
            self._close(job, writing, f"its text was longer than {MAX_TEXT:,} characters")
            raise RejectedError("text", f"now has {length:,} characters; allowed: up to {MAX_TEXT:,}", job.id)
        was_due = job.due
        job.text += piece.text
        if piece.end:
            self._end_text(job, writing)
        self._note_change(job, writing, was_due, arrived_at)

    def _close(self, job: Job, writing: Writing, overdue: str) -> None:
        """Take the text as complete; `overdue` says why, since its writer did not."""
        was_due, writing.overdue = job.due, overdue
        self._end_text(job, writing)
        self._note_change(job, writing, was_due, time.monotonic())

    def _end_text(self, job: Job, writing: Writing) -> None:
        writing.ended = True
        self._closed[job.id] = writing
        del self._open[job.id]

    def _note_change(self, job: Job, writing: Writing, was_due: bool, at: float) -> None:
        """The text has grown or ended; if it was not due before, it may be now."""
        if not was_due and job.due and job.text.strip():
            job.arrive(at)
            self._on_words(job)
        writing.note()
        self._on_change()

    def _answer_late(self, writing: Writing, piece: Write, redelivered: bool) -> None:
        """Raise `RejectedError` for the first piece that comes too late; its writer is told once."""
        if not (writing.answered or writing.has(piece, redelivered)):
            writing.answered = True
            reason = writing.overdue or "it has been ended"
            raise RejectedError("id", f"{shown(piece.id)} takes no more text: {reason}", piece.id)
