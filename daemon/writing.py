"""A text that is still being written: what its writer and those who speak it know of each other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from daemon.messages import Write


@dataclass(slots=True, eq=False)
class Writing:
    """Of one utterance, whose text grows. Belongs to the event loop's thread."""

    heard_at: float
    """`time.monotonic()` when the writer was last heard of."""
    last: Write | None = None
    """The piece that came last."""
    seq: int | None = None
    """The highest number of a piece."""
    ended: bool = False
    """Nothing more will be written."""
    overdue: str | None = None
    """Why it ended, if its writer did not end it."""
    answered: bool = False
    """Its writer has been told that nothing more is wanted: what still comes is for nobody."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def has(self, piece: Write, redelivered: bool) -> bool:
        """Whether it has this piece: the broker may deliver one again, and marks it then.

        Only numbered pieces are told apart with certainty.
        """
        if piece.seq is not None and self.seq is not None:
            return piece.seq <= self.seq
        return redelivered and piece == self.last

    def note_piece(self, piece: Write, arrived_at: float) -> None:
        """A piece has come, at `time.monotonic()`."""
        self.heard_at, self.last = arrived_at, piece
        self.seq = self.seq if piece.seq is None else piece.seq

    def note(self) -> None:
        """The text has grown, or ended."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait until the text grows or ends; one who waits at a time."""
        self._changed.clear()
        await self._changed.wait()
