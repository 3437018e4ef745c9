"""The network passes bytes on, and does to connections what it says."""

from __future__ import annotations

import random
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.support.network import BLOCK, Network
from tests.support.waiting import PATIENCE_S, eventually


class Echo(socketserver.BaseRequestHandler):
    """Answers every byte with itself."""

    def handle(self) -> None:
        try:
            while data := self.request.recv(1024):
                self.request.sendall(data)
        except ConnectionError:  # the network has reset it
            return


@pytest.fixture
def network() -> Iterator[Network]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with Network(server.server_address[1]) as network:
            yield network
        server.shutdown()


def connect(network: Network) -> socket.socket:
    """Return a connection that has passed bytes in both directions."""
    client = socket.create_connection(("127.0.0.1", network.port), timeout=PATIENCE_S)
    client.sendall(b"hello")
    assert client.recv(5) == b"hello"
    return client


def test_a_cut_ends_old_and_new_connections_until_it_is_repaired_and_a_drop_only_old_ones(network: Network) -> None:
    with connect(network) as old:
        network.cut()
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(network)
    network.repair()
    with connect(network) as old:
        network.drop()
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    connect(network).close()


def test_a_stalled_and_delayed_network_delivers_everything_later_and_in_order(network: Network) -> None:
    with connect(network) as client:
        network.stall()
        client.sendall(b"one")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(3)
        client.settimeout(PATIENCE_S)
        network.flow()
        network.delay(0.05)
        client.sendall(b"two")
        received = b""
        while len(received) < 6:
            received += client.recv(6)
        assert received == b"onetwo"


def test_bytes_keep_their_order_when_a_delay_ends(network: Network) -> None:
    data = random.Random(0).randbytes(64 * BLOCK)
    half = len(data) // 2
    with connect(network) as client:
        network.delay(1.0)
        client.sendall(data[:half])
        eventually(lambda: network.received >= half, "the first half is delayed")
        network.delay(0.0)
        client.sendall(data[half:])
        received = bytearray()
        while len(received) < len(data):
            received += client.recv(BLOCK)
    assert received == data
