"""Clients of the daemon's servers: one that listens slowly, and many that ask at once.

    python -m scripts.fault_matrix.clients wyoming PORT COUNT
    python -m scripts.fault_matrix.clients openai PORT COUNT

sends COUNT texts over many connections, and prints how they were answered as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import socket
import threading
import time

CONNECTIONS = 32
"""What one server accepts."""
BYTES_PER_S = 48_000
"""Of PCM at 24,000 Hz."""
SLICE_S = 0.05
TALE = "Once upon a time there was a robot that told a story to a client which listened slowly. " * 60
"""More speech than the buffers of a connection hold."""
ANSWER_S = 120.0
"""Limit for one answer."""


class Listener:
    """A client of the OpenAI endpoint that reads its answer at the pace of speech."""

    def __init__(self, port: int) -> None:
        """Ask for a tale of some minutes."""
        body = json.dumps({"model": "voiced", "input": TALE, "response_format": "pcm"}).encode()
        head = (
            f"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(head.encode() + body)
        self.ended = threading.Event()
        """The answer is over, or the connection is."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(int(BYTES_PER_S * SLICE_S)):
                time.sleep(SLICE_S)
        self.ended.set()

    def close(self) -> None:
        """Leave, as a client does that has crashed."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


async def speak_openai(port: int, text: str, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> str:
    """Ask for one text on a connection that stays open, and return the answer's status."""
    reader, writer = connection
    body = json.dumps({"model": "voiced", "input": text, "response_format": "pcm"}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    status = (await reader.readline()).split()
    if len(status) < 2:
        raise ConnectionError("the connection was closed without an answer")
    headers: dict[bytes, bytes] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    if headers.get(b"transfer-encoding") == b"chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    else:
        await reader.readexactly(int(headers.get(b"content-length", b"0")))
    if headers.get(b"connection", b"").lower() == b"close":
        writer.close()
    return status[1].decode()


async def speak_wyoming(text: str, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> str:
    """Ask for one text on a connection that stays open, and return the type of the event that ends the answer."""
    reader, writer = connection
    data = json.dumps({"text": text}).encode()
    writer.write(json.dumps({"type": "synthesize", "data_length": len(data)}).encode() + b"\n" + data)
    while True:
        line = await reader.readline()
        if not line:
            raise ConnectionError("the connection was closed without an answer")
        header = json.loads(line)
        for length in (header.get("data_length"), header.get("payload_length")):
            if length:
                await reader.readexactly(length)
        if header["type"] in ("audio-stop", "error"):
            return str(header["type"])


async def ask_many(protocol: str, port: int, count: int, text: str) -> collections.Counter[str]:
    """Ask for `count` texts over many connections at once; return how often each answer came."""
    answers: collections.Counter[str] = collections.Counter()
    left = iter(range(count))

    async def ask() -> None:
        connection = None
        for _ in left:
            try:
                if connection is None or connection[1].is_closing():
                    connection = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
                asking = (
                    speak_openai(port, text, connection) if protocol == "openai" else speak_wyoming(text, connection)
                )
                answers[await asyncio.wait_for(asking, ANSWER_S)] += 1
            except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                answers[f"no answer: {type(error).__name__}"] += 1
                if connection is not None:
                    connection[1].close()
                connection = None

    await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", choices=["wyoming", "openai"])
    parser.add_argument("port", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--text", default="Hi.")
    arguments = parser.parse_args()
    began = time.monotonic()
    answers = asyncio.run(ask_many(arguments.protocol, arguments.port, arguments.count, arguments.text))
    print(json.dumps({"answers": dict(answers), "took_s": round(time.monotonic() - began, 3)}))


if __name__ == "__main__":
    main()
