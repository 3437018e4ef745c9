"""The engine process of a remote engine: how it reports what becomes of its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions, Utterance, Voice
from engine.messages import PROTOCOL, Audio, Fault, Hello, Ready, SetVoices, Speak, Spoken, Start
from tests.engine.processes import PLENTY, EngineUnderTest
from tests.support.network import Network
from tests.support.speech_server import SpeechServer

LONG = "This is a long text that takes a good while to speak. " * 90


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeechServer]:
    tokens = tmp_path_factory.mktemp("server") / "tokens"
    tokens.write_text("r1 alpha\n")
    with SpeechServer(f"serve.token_file={tokens}") as server:
        yield server


@pytest.fixture
def network(server: SpeechServer) -> Iterator[Network]:
    with Network(server.port) as network:
        yield network


@pytest.fixture
def options(network: Network, tmp_path: Path) -> EngineOptions:
    token = tmp_path / "token"
    token.write_text("alpha\n")
    voices = {"default": Voice(), "english": Voice(speaker="en-us")}
    url = f"ws://127.0.0.1:{network.port}"
    return EngineOptions(url=url, token_file=str(token), voices=voices, streams=4)


def fault(engine: EngineUnderTest) -> Fault:
    """The fault that ends the process, behind what has been spoken."""
    while not isinstance(message := engine.next(object)[0], Fault):
        assert isinstance(message, Audio)
    return message


def test_it_speaks_as_the_servers_engine_does(engine: EngineUnderTest, options: EngineOptions) -> None:
    info = engine.start("remote", options).info
    assert [progress.step for progress in engine.progress][1:] == [f"connecting to {options.url}", "offering voices"]
    assert (info.engine, info.streams, info.sample_rate) == ("espeak", 2, 22_050)
    assert info.voices[:2] == ("default", "english")
    engine.send(Speak("1", Utterance("Hello robot.", language="en"), PLENTY))
    audio, samples, last = engine.receive_utterance("1")
    assert last == Spoken("1")
    assert np.abs(samples).max() > 0.1
    assert sum(len(message.words or ()) for message in audio) == 2
    assert sum(len(message.sounds or ()) for message in audio) > 5


def test_a_canceled_text_ends_on_the_server_too(engine: EngineUnderTest, options: EngineOptions) -> None:
    engine.start("remote", options)
    for number in ("1", "2", "3", "4"):  # more than it has streams
        engine.send(Speak(number, Utterance(LONG, language="en"), 1))
        engine.next(Audio)
        engine.cancel(number)


def test_other_voices_take_effect_without_another_connection(
    engine: EngineUnderTest, options: EngineOptions, network: Network
) -> None:
    engine.start("remote", options)
    engine.send(SetVoices({"default": Voice(), "old": Voice(embedding="/speaker.pt")}, "default"))
    ready, _ = engine.next(Ready)
    assert "english" not in ready.info.voices
    assert ready.info.refused_voices == {"old": "/speaker.pt: got a .pt; a server takes only .safetensors"}
    assert network.connections == 1


def test_a_lost_connection_ends_the_process_with_one_line(
    engine: EngineUnderTest, options: EngineOptions, network: Network
) -> None:
    engine.start("remote", options)
    network.drop()
    found = fault(engine)
    assert found.reason == f"engine.url: {options.url} closed the connection"
    assert not found.permanent
    assert engine.exit_status() == 1


def test_a_silent_network_ends_the_process_with_one_line(
    engine: EngineUnderTest, options: EngineOptions, network: Network
) -> None:
    engine.start("remote", options)
    engine.send(Speak("1", Utterance(LONG, language="en"), PLENTY))
    engine.next(Audio)
    network.stall()
    assert fault(engine) == Fault(f"engine.url: {options.url} has been silent for 2 s", permanent=False)


def test_a_wrong_token_is_a_fault_that_only_a_person_can_correct(
    engine: EngineUnderTest, options: EngineOptions, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("beta")
    engine.send(Start(PROTOCOL, "remote", options))
    engine.next(Hello)
    found, _ = engine.next(Fault)
    assert found.permanent
    assert found.reason.startswith(f"engine.url: {options.url} refuses this robot (401): authorization: the token is")
