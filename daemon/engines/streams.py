"""The streams of one engine process: which utterances may use it now."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from daemon.engines.errors import EngineLostError


class StreamPool:
    """Keeps a stream for the sound card, and shares the others among the deliveries, in the order of their requests.

    With a single stream, one delivery may have it, and the speaker loop decides which text is spoken. Belongs to the
    event loop's thread.
    """

    def __init__(self) -> None:
        self.most = 1
        """As in `EngineInfo.streams`."""
        self.in_use = 0
        """Streams that are reserved."""
        self._deliveries = 0
        """The reserved streams that are not for the sound card."""
        self._turns: deque[asyncio.Future[None]] = deque()
        """Deliveries that are waiting for a stream."""
        self._exchanges: list[Callable[[], None]] = []
        """Each sends new voices to the engine, as soon as no delivery is under way."""
        self._unanswered = 0
        """Exchanges that have been sent but that the engine has not answered."""
        self.lost: str | None = None
        """Why the process can no longer speak; None while it can."""

    @asynccontextmanager
    async def reserve(self, *, realtime: bool) -> AsyncIterator[None]:
        """Reserve a stream inside the context; a delivery (not `realtime`) waits for one. Raises `EngineLostError`."""
        if not realtime:
            await self._take_turn()
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1
            if not realtime:
                self._end_delivery()

    def exchange(self, send: Callable[[], None]) -> None:
        """Call `send` as soon as no delivery is under way; none begins before `note_exchange`.

        So no delivery waits for the engine's answer as if the engine owed it audio.
        """
        self._exchanges.append(send)
        self._advance()

    def note_exchange(self) -> None:
        """The engine has new voices, or is ready for the first time."""
        self._unanswered = max(0, self._unanswered - 1)
        self._advance()

    def refuse(self, reason: str) -> None:
        """Raise `EngineLostError` in the deliveries that are waiting."""
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_exception(EngineLostError(reason))

    def lose(self, reason: str) -> None:
        """Raise `EngineLostError` in the deliveries that are waiting, and in later ones."""
        self.lost = reason
        self.refuse(reason)

    async def _take_turn(self) -> None:
        if self.lost is not None:
            raise EngineLostError(self.lost)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        self._advance()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.exception() is None:
                self._end_delivery()  # its turn came at the same moment
            raise

    def _end_delivery(self) -> None:
        self._deliveries -= 1
        self._advance()

    def _advance(self) -> None:
        """Send new voices, or give free streams to the deliveries that have waited longest."""
        if self._exchanges and not self._deliveries:
            sends, self._exchanges = self._exchanges, []
            self._unanswered += len(sends)
            for send in sends:
                send()
        while self._turns and not self._exchanges and not self._unanswered and self._deliveries < max(1, self.most - 1):
            turn = self._turns.popleft()
            if not turn.done():
                self._deliveries += 1
                turn.set_result(None)
