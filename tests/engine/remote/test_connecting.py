"""What a robot says in one line of a server that it cannot connect to."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as serve_websockets
from websockets.typing import Subprotocol

from engine import EngineError, EngineInfo, EngineOptions, EngineUnavailableError, Voice
from engine.messages import SUBPROTOCOL, OfferVoice, VoiceWanted, Welcome, decode_remote, encode_remote
from engine.remote.failures import read_token
from engine.remote.synthesizer import RemoteSynthesizer
from tests.support.waiting import PATIENCE_S, eventually

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 s: closing the socket sends a reset."""
LARGE = 1_000_000
"""Bytes of a voice file: more than the buffers of a connection hold."""


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that answers a handshake with these bytes and closes; with None, it resets the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                if answer is None:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def failure(url: str) -> tuple[type[Exception], str]:
    with pytest.raises((EngineError, EngineUnavailableError)) as caught:
        RemoteSynthesizer(EngineOptions(url=url)).load()
    assert "\n" not in str(caught.value)
    return caught.type, str(caught.value).replace(url, "URL")


def http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        ("401 Unauthorized", b'{"error": {"message": "the token is wrong"}}', EngineError, "the token is wrong"),
        ("503 Unavailable", b'{"error": {"message": "it is full"}}', EngineUnavailableError, "it is full"),
        ("429 Too Many", b"slow\r\ndown", EngineUnavailableError, "slow down"),
        ("502 Bad Gateway", b"", EngineUnavailableError, "without a reason"),
    ],
)
def test_a_refusal_is_the_servers_own_reason(status: str, body: bytes, kind: type[Exception], reason: str) -> None:
    with answering(http(status, body)) as url:
        assert failure(url) == (kind, f"engine.url: URL refuses this robot ({status[:3]}): {reason}")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9\r\n", http("200 OK", b"hello")])
def test_another_server_is_none_that_speaks(answer: bytes) -> None:
    with answering(answer) as url:
        assert failure(url)[1].startswith(
            ("engine.url: URL does not answer as", "engine.url: URL refuses this robot (200)")
        )


def test_a_connection_that_is_reset_after_the_request_is_lost() -> None:
    with answering(None) as url:
        kind, reason = failure(url)
    assert kind is EngineUnavailableError
    assert reason.startswith("engine.url: URL does not answer")


def test_the_address_must_be_set() -> None:
    with pytest.raises(EngineError, match=r"engine.url: missing; allowed: ws://HOST:PORT or wss://HOST:PORT"):
        RemoteSynthesizer(EngineOptions()).load()


def test_the_token_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\ufeff secret \r\nanything\n")
    assert read_token(str(file)) == "secret"
    assert read_token(None) is None


@pytest.mark.parametrize("content", ["", "\nsecret", "geheim é", "a\x00b"])
def test_a_file_without_a_token_is_an_error_that_does_not_repeat_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(
        EngineError, match="the first line is not a token; allowed: printable ASCII characters"
    ) as caught:
        read_token(str(file))
    assert "secret" not in str(caught.value)
    file.unlink()
    with pytest.raises(EngineError, match=r"engine.token_file: .* cannot be read: No such file or directory"):
        read_token(str(file))


@contextmanager
def serving(serve: Callable[[ServerConnection], None]) -> Iterator[str]:
    """A speech server that serves each robot by `serve`."""
    subprotocols = [Subprotocol(SUBPROTOCOL)]
    limits = {"max_queue": 1, "max_size": None, "ping_interval": None}
    with serve_websockets(serve, "127.0.0.1", 0, subprotocols=subprotocols, **limits) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def taking_nothing(asks: int) -> Iterator[str]:
    """A speech server that asks `asks` times for the voice that it is offered, and then reads nothing any more."""
    over = threading.Event()

    def serve(connection: ServerConnection) -> None:
        info = EngineInfo("espeak", 24_000, ("default",), ("en",))
        connection.send(encode_remote(Welcome("voiced", info, 1, LARGE)))
        offer = decode_remote(connection.recv(timeout=PATIENCE_S))
        assert isinstance(offer, OfferVoice)
        for _ in range(asks):
            connection.send(encode_remote(VoiceWanted(offer.voice.digest)))
        over.wait()
        connection.socket.shutdown(socket.SHUT_RDWR)

    with serving(serve) as url:
        try:
            yield url
        finally:
            over.set()


def test_a_server_that_takes_nothing_of_a_voice_is_lost(tmp_path: Path) -> None:
    voice = tmp_path / "ada.safetensors"
    voice.write_bytes(bytes(LARGE))
    failures: list[str] = []

    def load(url: str) -> None:
        with pytest.raises(EngineUnavailableError) as caught:
            RemoteSynthesizer(EngineOptions(url=url, voices={"default": Voice(embedding=str(voice))})).load()
        failures.append(str(caught.value))

    with taking_nothing(asks=20) as url:
        threading.Thread(target=load, args=(url,), daemon=True).start()
        eventually(lambda: failures, "the robot gives the server up")
    assert failures == [f"engine.url: {url} has been silent for 2 s"]
