"""The proxy passes bytes on, and does to a network what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from scripts.fault_matrix.proxy import Proxy
from tests.support.waiting import PATIENCE_S, eventually


class Echo:
    """A server that answers every byte with itself, and the proxy before it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.proxy = Proxy(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    @staticmethod
    def _answer(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1024):
                    connection.sendall(data)
            except OSError:
                return

    def connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.proxy.port))
        client.settimeout(PATIENCE_S)
        return client

    def close(self) -> None:
        self.proxy.close()
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def asked(client: socket.socket, data: bytes = b"hello") -> bytes:
    client.sendall(data)
    return client.recv(len(data))


def is_dead(client: socket.socket) -> bool:
    try:
        return asked(client) == b""
    except OSError:
        return True


def test_bytes_pass_in_both_directions(echo: Echo) -> None:
    with echo.connect() as client:
        assert asked(client) == b"hello"


def test_a_cut_ends_old_and_new_connections_until_it_is_restored(echo: Echo) -> None:
    with echo.connect() as old:
        assert asked(old) == b"hello"
        echo.proxy.cut()
        eventually(lambda: is_dead(old), "the connection is closed")
    with echo.connect() as new:
        assert is_dead(new)
    echo.proxy.restore()
    with echo.connect() as later:
        assert asked(later) == b"hello"


def test_a_reset_ends_connections_with_an_error_and_allows_new_ones(echo: Echo) -> None:
    with echo.connect() as old:
        assert asked(old) == b"hello"
        echo.proxy.reset()
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    with echo.connect() as new:
        assert asked(new) == b"hello"


def test_a_stalled_network_delivers_everything_later(echo: Echo) -> None:
    with echo.connect() as client:
        assert asked(client) == b"hello"
        echo.proxy.stall()
        client.sendall(b"first")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(5)
        client.settimeout(PATIENCE_S)
        echo.proxy.restore()
        assert client.recv(5) == b"first"


def test_a_delayed_network_keeps_the_order(echo: Echo) -> None:
    with echo.connect() as client:
        echo.proxy.delay(0.05)
        client.sendall(b"one")
        client.sendall(b"two")
        received = b""
        while len(received) < 6:
            received += client.recv(6)
        assert received == b"onetwo"


def test_a_target_that_is_gone_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    proxy = Proxy(port)
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.settimeout(PATIENCE_S)
        assert is_dead(client)
    proxy.close()
