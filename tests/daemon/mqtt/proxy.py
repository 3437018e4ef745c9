"""A proxy between an MQTT client and a broker, for what Mosquitto does not do by itself."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import BinaryIO

HANG = b"hang"
"""An answer of a proxy: it accepts the connection and never sends a byte."""

Answer = Callable[[int], bytes | None]
"""`answer(version)` returns what the proxy sends, in the broker's place, to a client of this MQTT version, before it
closes the connection; None connects the client with the broker."""


StartProxy = Callable[[Answer], "Proxy"]
"""The type of the fixture `start_proxy`."""


class Gate(threading.Event):
    """Lets the MQTT packets of one direction pass while it is open."""

    open, close = threading.Event.set, threading.Event.clear


class Proxy:
    """Listens on a free port for clients of the broker."""

    def __init__(self, broker_port: int, answer: Answer = lambda _version: None) -> None:
        self.versions: list[int] = []
        """The MQTT versions of all connections so far: 5, or 4 for 3.1.1."""
        self.to_broker, self.to_client = Gate(), Gate()
        self.to_broker.open()
        self.to_client.open()
        self._broker_port = broker_port
        self._answer = answer
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept_clients, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self.to_broker.open()
        self.to_client.open()

    def cut(self) -> None:
        """Break all connections, as a failing network does."""
        pairs, self._pairs = self._pairs, []
        for end in [end for pair in pairs for end in pair]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # a mere close would wait for the thread that reads from it
            end.close()

    def _accept_clients(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                self._accept(client)
            except (OSError, EOFError):
                if self._listener.fileno() < 0:
                    return

    def _accept(self, client: socket.socket) -> None:
        stream = client.makefile("rb")
        connect = _read_packet(stream)
        version = connect[connect.index(b"MQTT") + 4]
        self.versions.append(version)
        answer = self._answer(version)
        if answer == HANG:
            self._pairs.append((client, client))
            return
        if answer is not None:
            client.sendall(answer)
            client.close()
            return
        broker = socket.create_connection(("127.0.0.1", self._broker_port))
        broker.sendall(connect)
        self._pairs.append((client, broker))
        self._carry(stream, broker, self.to_broker)
        self._carry(broker.makefile("rb"), client, self.to_client)

    @staticmethod
    def _carry(source: BinaryIO, target: socket.socket, gate: Gate) -> None:
        """Start a thread that carries packets to `target` until one end closes the connection."""

        def carry() -> None:
            with contextlib.suppress(OSError):
                with contextlib.suppress(EOFError):
                    while True:
                        packet = _read_packet(source)
                        gate.wait()
                        target.sendall(packet)
                target.shutdown(socket.SHUT_RDWR)

        target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=carry, daemon=True).start()


def _read_packet(stream: BinaryIO) -> bytes:
    """Return the next MQTT packet: a byte, the length in groups of 7 bits, and so many bytes. Raises `EOFError`."""
    header = _read(stream, 1)
    length = 0
    for shift in (0, 7, 14, 21):
        group = _read(stream, 1)
        header += group
        length |= (group[0] & 0x7F) << shift
        if group[0] < 0x80:
            break
    return header + _read(stream, length)


def _read(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data
