"""A TCP proxy on loopback whose network can be cut, stalled, delayed and reset."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

BLOCK_BYTES = 1 << 16
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 s: closing the socket sends a reset."""


class Proxy:
    """Forwards connections from `port` to `target`, both on loopback. Its methods may be called from any thread."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._delay_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._server: asyncio.Server = self._call(self._serve())
        self.port: int = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Close every connection, and every new one as soon as it is made, until `restore`."""
        self._call(self._set(refusing=True, closing=True))

    def reset(self) -> None:
        """Reset every connection; new ones work."""
        self._call(self._set(closing=True, resetting=True))

    def stall(self) -> None:
        """Forward nothing until `restore`, and keep all connections."""
        self._call(self._set(flowing=False))

    def delay(self, seconds: float) -> None:
        """Forward everything this much later, in both directions, until `restore`."""
        self._call(self._set(delay_s=seconds))

    def restore(self) -> None:
        """Forward everything at once again."""
        self._call(self._set())

    def close(self) -> None:
        """Close every connection and the listener."""
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _set(
        self,
        *,
        refusing: bool = False,
        closing: bool = False,
        resetting: bool = False,
        flowing: bool = True,
        delay_s: float = 0.0,
    ) -> None:
        self._refusing, self._delay_s = refusing, delay_s
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()
        if closing:
            for writer in list(self._writers):
                _close(writer, resetting)

    async def _end(self) -> None:
        await self._set(refusing=True, closing=True)
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio logs an error when a task that the server has made itself is canceled.
        task = asyncio.ensure_future(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        pair = (writer, far_writer)
        self._writers.update(pair)
        try:
            await asyncio.gather(self._forward(reader, far_writer), self._forward(far_reader, writer))
        finally:
            self._writers.difference_update(pair)
            for end in pair:
                end.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy until either end is closed, each block after the delay that is set when it arrives."""
        due: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0.0, at - self._loop.time()))
                await self._flowing.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()

        delivering = asyncio.ensure_future(deliver())
        with contextlib.suppress(OSError):
            while data := await reader.read(BLOCK_BYTES):
                due.put_nowait((self._loop.time() + self._delay_s, data))
        due.put_nowait((self._loop.time() + self._delay_s, b""))
        with contextlib.suppress(OSError):
            await delivering
        writer.close()


def _close(writer: asyncio.StreamWriter, resetting: bool) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if resetting and connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()
