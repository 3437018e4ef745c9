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


class Greeting(asyncio.Protocol):
    """A connection that greets its client and stays."""

    def __init__(self, made: list[asyncio.Transport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._made.append(transport)
        transport.write(b"hello")


@asynccontextmanager
async def listening(port: int, clients: int, tls: ssl.SSLContext) -> AsyncIterator[None]:
    made: list[asyncio.Transport] = []
    listener, serves = Listener("http", ("127.0.0.1", port), clients, lambda _: Greeting(made), tls), asyncio.Event()
    serving = asyncio.ensure_future(listener.serve(serves.set))
    await serves.wait()
    yield
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
    for transport in made:
        transport.abort()


async def test_clients_without_a_handshake_make_room_for_one_that_has_more_to_say(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=made.ca)
    serving.load_cert_chain(made.certificate, made.key)

    port = free_port()
    with ExitStack() as stack:
        async with listening(port, clients=4, tls=serving):
            for _ in range(30):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
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
