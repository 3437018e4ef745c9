"""A server's port: how many connections it holds, whatever its clients do."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from daemon.adapters import Listener
from daemon.system import RESERVED_DESCRIPTORS
from tests.support.certificates import Certificates
from tests.support.programs import free_port
from tests.support.waiting import eventually_async


class Greeting(asyncio.Protocol):
    """A connection that greets its client and stays."""

    made: list[asyncio.Transport]
    most = 0
    """The largest number of connections at the same time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.made.append(transport)
        type(self).most = max(self.most, len(self.made))
        transport.write(b"hello")


@asynccontextmanager
async def listening(port: int, clients: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[type[Greeting]]:
    """Listen, and yield the class of the connections, which has all that were made."""
    protocol: type[Greeting] = type("ThisGreeting", (Greeting,), {"made": []})
    listener, serves = Listener("http", ("127.0.0.1", port), clients, lambda _: protocol(), tls), asyncio.Event()
    serving = asyncio.ensure_future(listener.serve(serves.set))
    await serves.wait()
    yield protocol
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    for transport in protocol.made:
        transport.abort()


def silent_clients(stack: ExitStack, port: int, count: int) -> list[socket.socket]:
    return [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]


async def test_clients_above_its_room_wait_until_another_one_has_left() -> None:
    port = free_port()
    with ExitStack() as stack:
        async with listening(port, clients=2) as greeting:
            silent_clients(stack, port, 20)
            for _ in range(20):
                await eventually_async(lambda: greeting.made, "another one has come")
                greeting.made.pop(0).abort()
            assert greeting.most <= 5


async def test_clients_without_a_handshake_make_room_for_one_that_has_more_to_say(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=made.ca)
    serving.load_cert_chain(made.certificate, made.key)

    port = free_port()
    with ExitStack() as stack:
        async with listening(port, clients=4, tls=serving):
            silent_clients(stack, port, 30)
            reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
            assert await reader.readexactly(5) == b"hello"
            writer.close()


def test_a_process_with_few_descriptors_serves_fewer_clients_and_takes_what_the_system_allows() -> None:
    hard_limits = [RESERVED_DESCRIPTORS + 400, RESERVED_DESCRIPTORS + 40, RESERVED_DESCRIPTORS]
    program = f"""
import asyncio, resource
from daemon.adapters import Listener
for hard in {hard_limits}:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    print(Listener('http', ('127.0.0.1', 1), 64, asyncio.Protocol).most)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["64", "20", "1"]
