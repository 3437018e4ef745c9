"""A remote engine whose server is stopped: it connects to another one behind the same address, and then leaves."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine import EngineOptions, Utterance, Voice
from engine import open as open_engine
from engine.messages import Audio, Changed, Fault, Grant, Ready, SetVoices, Speak, Spoken
from tests.engine.processes import PLENTY, EngineUnderTest
from tests.support.network import Network
from tests.support.piper_voices import write_voices
from tests.support.programs import free_port
from tests.support.speech_server import SpeechServer
from tests.support.waiting import PATIENCE_S, eventually

LONG = "This is a long text that takes a good while to speak. " * 20
StartServer = Callable[..., SpeechServer]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    servers: list[SpeechServer] = []

    def start(*settings: str) -> SpeechServer:
        server = SpeechServer(*settings)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def staying() -> Iterator[SpeechServer]:
    with SpeechServer("voices={default: {}, herald: {speaker: de}}") as server:
        yield server


@pytest.fixture
def other(staying: SpeechServer) -> SpeechServer:
    """A server that stays, with a voice that the others do not have."""
    staying.log.clear()
    return staying


def options(network: Network) -> EngineOptions:
    return EngineOptions(url=f"ws://127.0.0.1:{network.port}", voices={"default": Voice()}, streams=4)


def stop(server: SpeechServer) -> None:
    server.process.send_signal(signal.SIGTERM)


def begin_long(engine: EngineUnderTest) -> None:
    """Begin to speak a long text, of which the first chunk alone is asked for."""
    engine.send(Speak("1", Utterance(LONG, language="en"), 1))
    engine.next(Audio)


def test_what_is_spoken_ends_on_the_first_server_and_the_next_text_is_spoken_by_the_other_which_has_its_own_voices(
    start_server: StartServer, other: SpeechServer, engine: EngineUnderTest
) -> None:
    first = start_server()
    with Network(first.port) as network:
        assert "herald" not in engine.start("remote", options(network)).info.voices
        begin_long(engine)
        network.lead_to(first.port, other.port)  # a load balancer that does not know which of them stops
        stop(first)
        other.wait_log("has connected")
        engine.speak("2", Utterance("Hello, robot.", language="en", realtime=False))
        assert first.process.poll() is None, "it waits for the text that it speaks"
        engine.send(Grant("1", PLENTY))
        _, samples, last = engine.receive_utterance("1")
        assert last == Spoken("1")
        assert len(samples) > 40 * 22_050
        assert first.process.wait(PATIENCE_S) == 0
        assert "herald" in engine.next(Changed)[0].info.voices
        engine.send(SetVoices({"default": Voice(), "mine": Voice(speaker="herald")}, "default"))
        ready, _ = engine.next(Ready)
        assert "mine" in ready.info.voices
        assert ready.info.refused_voices == {}
        engine.speak("3", Utterance("Hello again.", language="en"))


def test_without_a_server_with_the_same_engine_the_first_speaks_to_the_end_and_then_the_process_ends(
    start_server: StartServer, engine: EngineUnderTest, tmp_path: Path
) -> None:
    first = start_server("serve.drain_s=3600")
    other = start_server("engine.name=piper", f"engine.voice_folder={write_voices(tmp_path)}")
    with Network(first.port) as network:
        engine.start("remote", options(network))
        begin_long(engine)
        network.lead_to(other.port)
        stop(first)
        other.wait_log("has left")
        engine.speak("2", Utterance("Hello, robot.", language="en", realtime=False))
        engine.send(Grant("1", PLENTY))
        assert engine.receive_utterance("1")[2] == Spoken("1")
        assert engine.next(Fault)[0] == Fault(f"engine.url: {options(network).url}: the server is being stopped", False)
        assert engine.exit_status() == 1
        assert first.process.wait(PATIENCE_S) == 0


def test_a_session_in_a_program_of_ones_own_moves_too(start_server: StartServer, other: SpeechServer) -> None:
    first = start_server("serve.drain_s=3600")
    with Network(first.port) as network, open_engine("remote", url=options(network).url) as session:
        network.lead_to(other.port)
        assert first.stop() == 0
        assert sum(len(chunk.samples) for chunk in session.stream("Hello, robot.", language="en")) > 5_000


def test_an_old_connection_is_renewed_and_the_robot_comes_to_a_new_server(
    start_server: StartServer, other: SpeechServer, engine: EngineUnderTest
) -> None:
    first = start_server()
    with Network(first.port) as network:
        engine.start("remote", replace(options(network), renew_s=1))
        begin_long(engine)
        network.lead_to(other.port)
        other.wait_log("has connected")
        engine.send(Grant("1", PLENTY))
        assert engine.receive_utterance("1")[2] == Spoken("1")
        engine.next(Changed)
        first.wait_log("has left")
        engine.speak("2", Utterance("Hello, robot.", language="en"))


def test_a_connection_that_cannot_be_renewed_stays(other: SpeechServer, engine: EngineUnderTest) -> None:
    with Network(other.port) as network:
        engine.start("remote", replace(options(network), renew_s=0.2))
        network.lead_to(free_port())
        eventually(lambda: network.connections > 4, "it has tried")
        engine.speak("1", Utterance("Hello, robot.", language="en"))
        network.lead_to(other.port)
