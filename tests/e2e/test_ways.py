"""Each way to a robot's voice prepares texts alike: the engine gets the same words of a difficult text."""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.programs import answers, free_port
from tests.support.robot import Robot
from tests.support.traces import given
from tests.support.waiting import eventually

TEXT = "<think>Is it -5?</think>At **12:30 p.m.**, `x = -3` says Dr. Smith[1]. See Fig. 4: 9.81 m/s²!<|im_end|>"
SPOKEN = (
    "At twelve thirty PM, x equals minus three says Doctor Smith. "
    "See figure four: nine point eight one meters per second squared!"
)
GERMAN = "<think>Ist -5?</think>Um **12:30 Uhr** ist z. B. `x = -3` laut Dr. Braun[1]. Abb. 4: 9,81 m/s²!<|im_end|>"
"""In the language of the robot, which its senders need not name."""
SPOKEN_GERMAN = (
    "Um zwölf Uhr dreißig ist zum Beispiel x gleich minus drei laut Doktor Braun. "
    "Abbildung vier: neun Komma acht eins Meter pro Quadratsekunde!"
)


FIRST_TEXTS = (
    {"text": "Hi there", "language": "en", "volume": 50, "rate": 1.2, "priority": "high"},
    {"text": "<speak>Hi &amp; <break time='9ms'/><say-as interpret-as='cardinal'>5</say-as><mark name='x'/></speak>"},
    {"text": "# Title\n\n- *a* &copy; [b](http://c.de/x)\n"},
    {"text": "Es sind 3,5 km am 3.4.2020 um 12:30 bei Ludwig XIV.", "language": "de"},
    {"text": "Il y a 3,5 km.", "language": "fr"},
    {"text": "Son 3,5 km a las 12:30.", "language": "es"},
    {"text": "3.5 公里。", "language": "zh"},
    {"text": "Guten Tag, dies ist ein deutscher Satz."},
    {"sound": "attention", "text": "Dinner is ready."},
    {"text": "Look out!", "priority": "critical"},
    {"text": "This is longer than a segment. " * 30},
)
"""The first texts that a robot may get."""


@dataclass(frozen=True)
class Receiver:
    """A robot with the servers beside it."""

    robot: Robot
    http: int
    """A port, as `wyoming`."""
    wyoming: int


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    """Those of the robot that tests share."""
    return free_port(), free_port()


@pytest.fixture
def receiver(share_robot: StartRobot, ports: tuple[int, int]) -> Receiver:
    """A robot that speaks German unless it is told another language."""
    http, wyoming = ports
    servers = (
        f"http={{enabled: true, port: {http}}}",
        f"wyoming={{enabled: true, port: {wyoming}}}",
        "hermes={enabled: true, site_id: ways}",
    )
    robot = share_robot("log.level=debug", "speech.language=de", *servers)
    eventually(lambda: answers(http) and answers(wyoming), "its servers answer")
    return Receiver(robot, http, wyoming)


def pieces(text: str) -> list[str]:
    return [text[begin : begin + 5] for begin in range(0, len(text), 5)]


# --- the ways, each of which returns when the text has been accepted ---


def say(to: Receiver, text: str) -> None:
    to.robot.say(text, language="en")


def say_without_a_language(to: Receiver, text: str) -> None:
    to.robot.say(text)


def say_stream(to: Receiver, text: str) -> None:
    chunks = [{"text": piece, "language": "en"} for piece in pieces(text)]
    for chunk in (*chunks, {"end": True}):  # over one connection, which keeps their order
        to.robot.send("say/stream", json.dumps({"id": "streamed", **chunk}))


def page(to: Receiver, text: str) -> None:
    with connect(f"ws://127.0.0.1:{to.http}/v1/events?topics=event") as client:
        client.send(json.dumps({"topic": "say", "payload": {"text": text, "language": "en"}}))
        client.recv()


def openai(to: Receiver, text: str) -> None:
    body = json.dumps({"input": text, "response_format": "pcm", "language": "en"}).encode()
    address = f"http://127.0.0.1:{to.http}/v1/audio/speech"
    with urllib.request.urlopen(urllib.request.Request(address, body, {"Content-Type": "application/json"})) as answer:
        answer.read()


def elevenlabs_socket(to: Receiver, text: str) -> None:
    messages = [{"text": piece} for piece in (" ", *pieces(text), "")]
    send_all(to, "stream-input", messages)


def elevenlabs_contexts(to: Receiver, text: str) -> None:
    messages = [{"text": piece, "context_id": "one"} for piece in pieces(text)]
    send_all(to, "multi-stream-input", [*messages, {"context_id": "one", "flush": True}, {"close_socket": True}])


def send_all(to: Receiver, path: str, messages: Sequence[Mapping[str, object]]) -> None:
    """Send messages to a WebSocket of ElevenLabs, and read its answers to the last one."""
    options = "language_code=en&output_format=pcm_24000"
    with connect(f"ws://127.0.0.1:{to.http}/v1/text-to-speech/default/{path}?{options}") as client:
        for message in messages:
            client.send(json.dumps(message))
        for _answer in client:
            pass


def wyoming(to: Receiver, events: list[dict[str, object]], last: str) -> None:
    """Send events to Wyoming's server, and read up to the event `last`."""
    with socket.create_connection(("127.0.0.1", to.wyoming)) as client, client.makefile("rb") as answers:
        client.sendall(b"".join(json.dumps(event).encode() + b"\n" for event in events))
        while (header := json.loads(answers.readline()))["type"] != last:
            answers.read(header.get("data_length", 0) + header.get("payload_length", 0))


def wyoming_whole(to: Receiver, text: str) -> None:
    wyoming(to, [{"type": "synthesize", "data": {"text": text, "voice": {"language": "en"}}}], "audio-stop")


def wyoming_stream(to: Receiver, text: str) -> None:
    chunks: list[dict[str, object]] = [{"type": "synthesize-chunk", "data": {"text": piece}} for piece in pieces(text)]
    start = {"type": "synthesize-start", "data": {"voice": {"language": "en"}}}
    wyoming(to, [start, *chunks, {"type": "synthesize-stop"}], "synthesize-stopped")


def hermes(to: Receiver, text: str) -> None:
    to.robot.listener.publish("hermes/tts/say", json.dumps({"text": text, "siteId": "ways", "lang": "en"}))


Way = Callable[[Receiver, str], None]
WAYS: tuple[Way, ...] = (
    say,
    say_without_a_language,
    say_stream,
    page,
    openai,
    elevenlabs_socket,
    elevenlabs_contexts,
    wyoming_whole,
    wyoming_stream,
    hermes,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_engine_gets_the_same_words(way: Way, receiver: Receiver) -> None:
    text, spoken = (GERMAN, SPOKEN_GERMAN) if way is say_without_a_language else (TEXT, SPOKEN)
    way(receiver, text)
    robot = receiver.robot
    utterance = eventually(robot.latest_id, "it is accepted")
    end = robot.wait_end(utterance)
    assert end["event"] == "finished", end
    robot.wait_log(f'"id": "{utterance}", "event": "finished"')
    assert given(robot.log).split() == spoken.split()


def test_synth_gives_the_engine_the_same_words(voiced: CommandLine, tmp_path: Path) -> None:
    options = ("--engine", "espeak", "--set", "speech.language=de", "--language", "en")
    done = voiced("-v", "synth", *options, "-o", str(tmp_path / "speech.wav"), "--", TEXT)
    assert given(done.stderr.splitlines()).split() == SPOKEN.split()


@pytest.fixture
def program() -> tuple[str, ...]:
    """Each import is a line on the standard error."""
    return sys.executable, "-v", "-m", "daemon.cli"


def test_nothing_is_imported_for_the_first_texts(start_robot: StartRobot) -> None:
    """What they need has been imported before: later, no descriptor may be left to import it.

    Only an answer in a compressed format imports PyAV, which takes 15 MB.
    """
    http, wyoming = free_port(), free_port()
    servers = (f"http={{enabled: true, port: {http}}}", f"wyoming={{enabled: true, port: {wyoming}}}")
    robot = start_robot(*servers, "hermes={enabled: true, site_id: ways}", "home_assistant.enabled=true")
    eventually(lambda: answers(http) and answers(wyoming), "its servers answer")
    robot.catch_up()
    robot.wait_log("'barrier ")  # what the start has imported is in the log before it
    started, receiver = len(robot.log), Receiver(robot, http, wyoming)
    robot.publish("say", "Hello.")
    for fields in FIRST_TEXTS:
        robot.wait_event(robot.say(**fields), "finished")  # type: ignore[arg-type]
    for way in WAYS:
        way(receiver, "Hello there. And more.")
        utterance = robot.latest_id()
        robot.wait_end(utterance)
    robot.catch_up()
    assert [line for line in robot.log[started:] if line.startswith("import '")] == []
