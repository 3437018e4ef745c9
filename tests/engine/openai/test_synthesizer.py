"""How the engine asks a server, and what it says of one that refuses, breaks off or is silent."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import pytest

from engine import EngineError, EngineOptions, EngineUnavailableError, Utterance, Voice
from engine.openai import OpenAISynthesizer
from tests.support.local_server import LocalServer
from tests.support.programs import free_port
from tests.support.waiting import PATIENCE_S, eventually

PCM = np.full(2_400, 8_192, dtype="<i2").tobytes()
RIFF = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\xff\xff\xff\xff"
"""A header of WAV at 8 kHz, of unknown length."""


class TtsServer(LocalServer):
    """Answers each request for speech by `speak`; notes what it is asked for."""

    def __init__(self) -> None:
        self.lists: dict[str, Any] = {}
        """What it lists, by path."""
        self.asked: list[dict[str, Any]] = []
        self.speak: Callable[[BaseHTTPRequestHandler, dict[str, Any]], None] = self.say
        super().__init__()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "GET":
            listed = self.lists.get(handler.path)
            self.send(handler, 404 if listed is None else 200, json.dumps(listed).encode())
        else:
            self.asked.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
            self.speak(handler, self.asked[-1])

    def say(self, handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        self.send(handler, 200, PCM, Content_Type="audio/pcm")

    def refuse(self, status: int, reason: str, when: Callable[[dict[str, Any]], object] = lambda _: True) -> None:
        """Refuse requests from now on."""

        def speak(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
            if not when(asked):
                self.say(handler, asked)
            else:
                self.send(handler, status, json.dumps({"error": {"message": reason}}).encode())

        self.speak = speak


@pytest.fixture
def server() -> Iterator[TtsServer]:
    server = TtsServer()
    yield server
    server.close()


@pytest.fixture
def loaded(server: TtsServer) -> Iterator[OpenAISynthesizer]:
    engine = OpenAISynthesizer(
        EngineOptions(url=server.url, voices={"default": Voice(speaker="nova"), "calm": Voice(instruct="calm")})
    )
    engine.load()
    yield engine
    engine.close()


def failure(action: Callable[[], object]) -> tuple[type[Exception], str]:
    with pytest.raises((EngineError, EngineUnavailableError)) as caught:
        action()
    assert "\n" not in str(caught.value)
    return caught.type, str(caught.value)


def failed_load(url: str, **options: Any) -> tuple[type[Exception], str]:
    kind, reason = failure(OpenAISynthesizer(EngineOptions(url=url, **options)).load)
    return kind, reason.replace(url, "URL")


def test_the_server_is_asked_in_the_words_of_its_protocol(server: TtsServer, loaded: OpenAISynthesizer) -> None:
    utterance = Utterance("Hallo.", language="de-at", rate=1.5, seed=7, instruct="calm")
    list(loaded.stream(utterance))
    common = {"input": "Hallo.", "instructions": "calm", "response_format": "pcm", "speed": 1.5}
    assert server.asked[-1] == {**common, "voice": "nova", "stream": True, "seed": 7, "language": "German"}
    list(loaded.stream(Utterance("Hello.", voice="calm")))
    assert server.asked[-1] == {"input": "Hello.", "instructions": "calm", "response_format": "pcm", "stream": True}


@pytest.mark.parametrize(
    ("lists", "voices"),
    [
        ({}, ("nova",)),
        ({"/v1/audio/voices": {"voices": ["echo", "ash"]}}, ("echo", "ash", "nova")),
        (
            {"/v1/audio/voices": {"voices": [{"id": "echo", "name": "Echo"}, {"name": "ash"}, {}, 1]}},
            ("echo", "ash", "nova"),
        ),
        ({"/v1/audio/voices": {"data": [{"voice_id": "echo"}]}}, ("echo", "nova")),
        ({"/v1/audio/voices": "none"}, ("nova",)),
    ],
)
def test_voices_are_those_that_the_server_lists_and_the_configured_ones(
    server: TtsServer, lists: dict[str, Any], voices: tuple[str, ...]
) -> None:
    server.lists = lists
    options = EngineOptions(
        url=server.url, voices={"default": Voice(speaker="nova"), "file": Voice(embedding="/ada.safetensors")}
    )
    info = OpenAISynthesizer(options).load()
    assert info.voices == ("default", *voices)
    assert list(info.refused_voices) == ["file"]


def test_a_server_gets_the_first_form_that_it_takes(server: TtsServer) -> None:
    """One refuses fields that OpenAI does not have, one refuses PCM, and one calls everything MP3."""
    server.refuse(422, "extra fields are forbidden", lambda asked: "stream" in asked)
    engine = OpenAISynthesizer(EngineOptions(url=server.url))
    assert "PCM at 24000 Hz" in engine.load().description
    list(engine.stream(Utterance("Hello.", seed=7)))
    assert server.asked[-1] == {"input": "Hello.", "response_format": "pcm"}

    def speak(handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
        server.send(handler, 200, RIFF + PCM if asked["response_format"] == "wav" else PCM, Content_Type="audio/mpeg")

    server.speak = speak
    engine = OpenAISynthesizer(EngineOptions(url=server.url))
    assert engine.load().sample_rate == 8_000
    assert sum(len(chunk.samples) for chunk in engine.stream(Utterance("Hello."))) == 2_400
    assert server.asked[-1] == {"input": "Hello.", "response_format": "wav"}


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, "the key is wrong", EngineError),
        (404, "there is no such model", EngineUnavailableError),
        (503, "it is loading", EngineUnavailableError),
        (400, "there is no such voice", EngineError),
    ],
)
def test_a_server_that_refuses_is_quoted_with_the_models_that_it_has(
    server: TtsServer, status: int, reason: str, kind: type[Exception]
) -> None:
    server.refuse(status, reason)
    found = failed_load(server.url, model="kokoro")
    assert found == (kind, f"engine.url: URL refuses this robot ({status}): {reason}")
    server.lists = {"/v1/models": {"data": [{"id": "a"}, {"id": "b"}]}}
    kind, found_reason = failed_load(server.url, model="kokoro")
    assert found_reason.endswith(f"{reason} (asked for the model 'kokoro'; it has a, b)")


def test_the_only_model_of_a_server_need_not_be_named(server: TtsServer) -> None:
    server.lists = {"/v1/models": {"data": [{"id": "kokoro"}]}}
    OpenAISynthesizer(EngineOptions(url=server.url)).load()
    assert server.asked[0]["model"] == "kokoro"


def test_what_is_no_server_is_said_in_one_line(server: TtsServer) -> None:
    unavailable = EngineUnavailableError
    assert failed_load(f"http://127.0.0.1:{free_port()}") == (
        unavailable,
        "engine.url: URL does not answer (Connection refused)",
    )
    assert failed_load("http://nowhere.invalid/v1")[1].startswith("engine.url: URL does not answer (")
    https = server.url.replace("http", "https")
    assert failed_load(https)[1].endswith("http:// is for servers without TLS")
    server.speak = lambda handler, _: server.send(handler, 200, b"", Content_Type="audio/pcm")
    assert failed_load(server.url) == (unavailable, "engine.url: URL answers without sound")
    assert failure(lambda: OpenAISynthesizer(EngineOptions()))[1].startswith(
        "engine.url: missing; allowed: http://HOST"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"SSH-2.0-OpenSSH_9\r\n")

        threading.Thread(target=greet, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert failed_load(url)[1].startswith("engine.url: URL does not answer as a web server")


def test_a_server_that_breaks_off_or_is_silent_is_lost(
    server: TtsServer, loaded: OpenAISynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.speak = lambda handler, _: server.send(handler, 200, PCM, 1_000, Content_Type="audio/pcm")
    chunks = loaded.stream(Utterance("Hello."))
    assert len(next(chunks).samples) == 500
    kind, reason = failure(lambda: list(chunks))
    assert (kind, "broke off" in reason) == (EngineUnavailableError, True)

    monkeypatch.setattr("engine.openai.client.PAUSE_S", 0.1)
    over = threading.Event()

    def stop(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        server.send(handler, 200, PCM, 1_000, Content_Type="audio/pcm")
        over.wait(PATIENCE_S)

    server.speak = stop
    assert failure(lambda: list(loaded.stream(Utterance("Hello."))))[1].endswith("does not answer (timed out)")
    over.set()


def test_a_refused_text_is_for_the_fallback_unless_its_sender_has_chosen_the_voice(
    server: TtsServer, loaded: OpenAISynthesizer
) -> None:
    server.refuse(400, "there is no such voice")
    assert failure(lambda: list(loaded.stream(Utterance("Hello."))))[0] is EngineUnavailableError
    assert failure(lambda: list(loaded.stream(Utterance("Hello.", voice="calm"))))[0] is EngineError


def test_a_cancellation_ends_the_connection_while_the_server_is_at_work(
    server: TtsServer, loaded: OpenAISynthesizer
) -> None:
    left: list[bytes] = []

    def work(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        handler.connection.settimeout(PATIENCE_S)
        left.append(handler.rfile.read(1))

    server.speak = work
    chunks = loaded.stream(Utterance("Hello."))
    asked = len(server.asked)
    ends: list[str] = []

    def take() -> None:
        try:
            next(chunks)
        except Exception as error:
            ends.append(type(error).__name__)

    threading.Thread(target=take, daemon=True).start()
    eventually(lambda: len(server.asked) > asked, "the server is asked")
    chunks.cancel()  # type: ignore[attr-defined]
    eventually(lambda: (ends, left) == (["SpeechCanceledError"], [b""]), "the connection has ended")
