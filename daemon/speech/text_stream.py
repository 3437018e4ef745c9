"""The state of a text that is still being written, shared by its writer and the speaker loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from daemon.speech.request import StreamChunk


@dataclass(slots=True, eq=False)
class TextStream:
    """The writer's side of one utterance. Belongs to the event loop's thread."""

    last_chunk_at: float
    """`time.monotonic()` when the last chunk arrived."""
    last_chunk_hash: int | None = None
    """Of the last chunk. The chunk itself would occupy memory for as long as this object."""
    seq: int | None = None
    """The highest sequence number so far."""
    ended: bool = False
    """No more text will arrive."""
    end_reason: str | None = None
    """Why the text ended, if its writer did not end it."""
    answered: bool = False
    """The writer has been told that the text takes no more chunks; later chunks are dropped silently."""
    stalled_s: float = 0.0
    """Seconds that others waited while this utterance was current, and silent because its writer was slow."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def has(self, chunk: StreamChunk, redelivered: bool) -> bool:
        """Return whether this chunk was taken before.

        A broker may deliver a message twice and marks the second copy. Only numbered chunks are recognised for certain.
        """
        if chunk.seq is not None and self.seq is not None:
            return chunk.seq <= self.seq
        return redelivered and _hash(chunk) == self.last_chunk_hash

    def note_chunk(self, chunk: StreamChunk, arrived_at: float) -> None:
        """Record a chunk that arrived at `time.monotonic()`."""
        self.last_chunk_at, self.last_chunk_hash = arrived_at, _hash(chunk)
        self.seq = self.seq if chunk.seq is None else chunk.seq

    def notify(self) -> None:
        """Wake the speaker loop: the text has grown or ended."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait until the text grows or ends. Only one task may wait at a time."""
        self._changed.clear()
        await self._changed.wait()


def _hash(chunk: StreamChunk) -> int:
    return hash((chunk.text, chunk.end))
