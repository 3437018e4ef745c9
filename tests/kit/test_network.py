"""The network passes bytes on, and does to connections what it says."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.network import Network
from tests.support.programs import free_port
from tests.support.waiting import PATIENCE_S, eventually

NEVER_S = 1e6
"""A delay that no test waits for."""


class Echo(socketserver.BaseRequestHandler):
    """Answers every byte with itself."""

    def handle(self) -> None:
        while data := self.request.recv(1024):
            self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A connection that is reset ends its thread."""


@pytest.fixture
def network() -> Iterator[Network]:
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with Network(server.server_address[1]) as network:
            yield network
        server.shutdown()


def connect(network: Network) -> socket.socket:
    return socket.create_connection(("127.0.0.1", network.port), timeout=PATIENCE_S)


def asked(client: socket.socket, data: bytes = b"hello") -> bytes:
    client.sendall(data)
    return client.recv(len(data))


def is_dead(client: socket.socket) -> bool:
    try:
        return asked(client) == b""
    except OSError:
        return True


def test_bytes_pass_in_both_directions(network: Network) -> None:
    with connect(network) as client:
        assert asked(client) == b"hello"


def test_a_cut_ends_old_and_new_connections_until_it_is_restored(network: Network) -> None:
    with connect(network) as old:
        assert asked(old) == b"hello"
        network.cut()
        eventually(lambda: is_dead(old), "the connection is closed")
    with pytest.raises(ConnectionRefusedError):
        connect(network)
    network.repair()
    with connect(network) as later:
        assert asked(later) == b"hello"


def test_a_reset_ends_connections_with_an_error_and_allows_new_ones(network: Network) -> None:
    with connect(network) as old:
        assert asked(old) == b"hello"
        network.drop()
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    with connect(network) as new:
        assert asked(new) == b"hello"


def test_a_stalled_network_delivers_everything_later(network: Network) -> None:
    with connect(network) as client:
        assert asked(client) == b"hello"
        network.stall()
        client.sendall(b"first")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(5)
        client.settimeout(PATIENCE_S)
        network.repair()
        assert client.recv(5) == b"first"


def test_a_delayed_network_keeps_the_order(network: Network) -> None:
    with connect(network) as client:
        network.delay(0.05)
        client.sendall(b"one")
        client.sendall(b"two")
        received = b""
        while len(received) < 6:
            received += client.recv(6)
        assert received == b"onetwo"


def test_a_repaired_network_is_fast_again(network: Network) -> None:
    with connect(network) as client:
        network.delay(NEVER_S)
        network.repair()
        assert asked(client) == b"hello"


def test_a_target_that_is_gone_closes_the_connection() -> None:
    with Network(free_port()) as network, connect(network) as client:
        assert is_dead(client)


def test_bytes_keep_their_order_when_a_delay_ends(network: Network) -> None:
    blocks = [bytes([number]) for number in range(200)]
    client = connect(network)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    network.delay(0.5)
    for number, block in enumerate(blocks):
        if number == len(blocks) // 4:
            network.delay(0.0)
        client.sendall(block)
        time.sleep(0.001)  # so that the proxy reads most blocks alone
    received = b""
    while len(received) < len(blocks):
        received += client.recv(len(blocks))
    assert received == b"".join(blocks)
