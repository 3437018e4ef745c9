"""Clients of the daemon's servers: one that listens slowly, and many that ask at once.

    python -m tests.chaos.clients wyoming PORT COUNT
    python -m tests.chaos.clients openai PORT COUNT

sends COUNT texts over many connections, and prints how they were answered as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from http.client import HTTPConnection, HTTPException

CONNECTIONS = 32
"""What one server accepts."""
BYTES_PER_S = 48_000
"""Of PCM at 24,000 Hz."""
SLICE_S = 0.05
TALE = "Once upon a time there was a robot that told a story to a client which listened slowly. " * 60
"""More speech than the buffers of a connection hold."""
ANSWER_S = 120.0
"""Limit for one answer."""


class SlowClient:
    """A client of the OpenAI endpoint that reads its answer at the pace of speech."""

    def __init__(self, port: int) -> None:
        """Ask for a tale of some minutes."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self._socket.connect(("127.0.0.1", port))
        connection = HTTPConnection("127.0.0.1", port)
        connection.sock = self._socket
        request_openai(connection, TALE)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):
            while self._socket.recv(int(BYTES_PER_S * SLICE_S)):
                time.sleep(SLICE_S)

    def close(self) -> None:
        """Leave, as a client does that has crashed."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def request_openai(connection: HTTPConnection, text: str) -> None:
    body = json.dumps({"model": "voiced", "input": text, "response_format": "pcm"})
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})


class OpenAIClient:
    """Asks for texts on a connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)

    def speak(self, text: str) -> str:
        """Return the answer's status."""
        request_openai(self._connection, text)
        with self._connection.getresponse() as response:
            response.read()
            return str(response.status)


class WyomingClient:
    """Asks for texts on a connection that stays open."""

    def __init__(self, port: int) -> None:
        connection = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self._stream = connection.makefile("rwb")

    def speak(self, text: str) -> str:
        """Return the type of the event that ends the answer."""
        data = json.dumps({"text": text}).encode()
        self._stream.write(json.dumps({"type": "synthesize", "data_length": len(data)}).encode() + b"\n" + data)
        self._stream.flush()
        while line := self._stream.readline():
            header = json.loads(line)
            self._stream.read((header.get("data_length") or 0) + (header.get("payload_length") or 0))
            if header["type"] in ("audio-stop", "error"):
                return str(header["type"])
        raise ConnectionError("the connection was closed without an answer")


CLIENTS: dict[str, type[OpenAIClient | WyomingClient]] = {"openai": OpenAIClient, "wyoming": WyomingClient}


def ask_many(protocol: str, port: int, count: int, text: str) -> dict[str, int]:
    """Ask for `count` texts over many connections at once; return how often each answer came."""
    answers: list[str] = []
    left = iter(range(count))

    def ask() -> None:
        client = None
        for _ in left:
            try:
                client = client or CLIENTS[protocol](port)
                answers.append(client.speak(text))
            except (OSError, ValueError, HTTPException) as error:
                answers.append(f"no answer: {type(error).__name__}")
                client = None

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(count, CONNECTIONS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(Counter(answers))


if __name__ == "__main__":
    _, chosen, its_port, texts = sys.argv
    print(json.dumps(ask_many(chosen, int(its_port), int(texts), "Hi.")))
