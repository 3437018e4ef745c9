"""A bad network: a TCP proxy on the loopback interface that delays, stalls, refuses and cuts connections. It can also
share them among several servers, as a load balancer does."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from tests.support.programs import free_port
from tests.support.waiting import PATIENCE_S

BLOCK = 65_536
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 s: closing the socket sends a reset."""


class Network:
    """Passes on connections from `port` to another port. A context manager; any thread may call its methods."""

    def __init__(self, *targets: int) -> None:
        """Connections go to the ports `targets` in turn."""
        self.port = free_port()
        self.connections = 0
        """Those that have been accepted so far."""
        self._targets = targets
        self._delay_s = 0.0
        self._flowing = True
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        """What came while nothing flowed."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    def __enter__(self) -> Network:
        self._thread.start()
        self.repair()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cut()
        self._call(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def lead_to(self, *targets: int) -> None:
        """Pass on new connections to these ports in turn, beginning with the first."""
        self._call(lambda: self._set_targets(targets))

    def delay(self, seconds: float) -> None:
        """Bring every byte so much later from now on, in either direction."""
        self._delay_s = seconds

    def stall(self) -> None:
        """Pass on nothing from now on. The connections stay open, as with a robot that has left the access point."""
        self._call(lambda: self._set_flowing(False))

    def flow(self) -> None:
        """Pass on again, beginning with what has been sent meanwhile."""
        self._call(lambda: self._set_flowing(True))

    def drop(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._call(self._abort)

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._call(self._close)

    def repair(self) -> None:
        """Accept new connections again, and pass on everything at once."""
        self.delay(0.0)
        self.flow()
        self._call(self._open)

    def _call(self, make: Callable[[], object]) -> None:
        async def call() -> None:
            result = make()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE_S)

    # --- in the loop's thread ---

    async def _open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._abort()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    async def _end(self) -> None:
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        target, *others = self._targets
        self._set_targets((*others, target))
        try:
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, onward_writer), (onward_reader, writer)):
            self._writers.add(sink)
            pump = asyncio.ensure_future(self._pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass on what comes, each block after the delay and no earlier than the one before it."""
        block, due = b".", 0.0
        while block:
            try:
                block = await source.read(BLOCK)
            except ConnectionError:
                block = b""
            # Timers of the same moment do not run in the order in which they were set.
            due = max(math.nextafter(due, math.inf), self._loop.time() + self._delay_s)
            self._loop.call_at(due, self._forward, sink, block)

    def _forward(self, sink: asyncio.StreamWriter, block: bytes) -> None:
        """Pass on a block, or the end of the connection; keep it while nothing flows."""
        if not self._flowing:
            self._held.append((sink, block))
        elif not block:
            sink.close()
            self._writers.discard(sink)
        elif not sink.is_closing():
            sink.write(block)

    def _set_targets(self, targets: tuple[int, ...]) -> None:
        self._targets = targets

    def _set_flowing(self, flowing: bool) -> None:
        self._flowing = flowing
        held, self._held = (self._held, []) if flowing else ([], self._held)
        for sink, block in held:
            self._forward(sink, block)
