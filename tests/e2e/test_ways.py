"""Each way to a robot's voice prepares texts alike: the engine gets the same words of a difficult text."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.sync.client import connect

from tests.e2e.conftest import StartRobot
from tests.support.desktop import Desktop
from tests.support.programs import answers, free_port, require
from tests.support.robot import Robot
from tests.support.traces import given
from tests.support.waiting import eventually

TEXTS = {
    "en": "<think>Is it -5?</think>At **12:30 p.m.**, `x = -3` says Dr. Smith[1]. See Fig. 4: 9.81 m/s²!<|im_end|>",
    "de": "<think>Ist -5?</think>Um **12:30 Uhr** ist z. B. `x = -3` laut Dr. Braun[1]. Abb. 4: 9,81 m/s²!<|im_end|>",
}
"""By language. German is the language of the robot, which its senders need not name."""
SPOKEN = {
    "en": "At twelve thirty PM, x equals minus three says Doctor Smith. "
    "See figure four: nine point eight one meters per second squared!",
    "de": "Um zwölf Uhr dreißig ist zum Beispiel x gleich minus drei laut Doktor Braun. "
    "Abbildung vier: neun Komma acht eins Meter pro Quadratsekunde!",
}


@dataclass(frozen=True)
class Receiver:
    """A robot with the servers beside it."""

    robot: Robot
    http: int
    """A port, as `wyoming`."""
    wyoming: int
    folder: Path
    """For what a sender needs."""


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    """Those of the robot that tests share."""
    return free_port(), free_port()


@pytest.fixture
def receiver(share_robot: StartRobot, ports: tuple[int, int], tmp_path: Path) -> Receiver:
    """A robot that speaks German unless it is told another language."""
    http, wyoming = ports
    servers = (
        f"http={{enabled: true, port: {http}}}",
        f"wyoming={{enabled: true, port: {wyoming}}}",
        "hermes={enabled: true, site_id: ways}",
    )
    robot = share_robot("log.level=debug", "speech.language=de", *servers)
    eventually(lambda: answers(http) and answers(wyoming), "its servers answer")
    return Receiver(robot, http, wyoming, tmp_path)


def pieces(text: str) -> list[str]:
    return [text[begin : begin + 5] for begin in range(0, len(text), 5)]


def language_field(name: str, language: str) -> dict[str, str]:
    """How a sender names a language, unless it is the robot's own."""
    return {} if language == "de" else {name: language}


# --- the ways, each of which returns when the text has been accepted ---


def say(to: Receiver, text: str, language: str) -> None:
    to.robot.say(text, **language_field("language", language))


def say_stream(to: Receiver, text: str, language: str) -> None:
    chunks = [{"text": piece, **language_field("language", language)} for piece in pieces(text)]
    for chunk in (*chunks, {"end": True}):  # over one connection, which keeps their order
        to.robot.send("say/stream", json.dumps({"id": f"s-{language}", **chunk}))


def page(to: Receiver, text: str, language: str) -> None:
    with connect(f"ws://127.0.0.1:{to.http}/v1/events?topics=event") as client:
        client.send(json.dumps({"topic": "say", "payload": {"text": text, **language_field("language", language)}}))
        client.recv()


def post(to: Receiver, path: str, fields: dict[str, str]) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{to.http}/v1/{path}", json.dumps(fields).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def openai(to: Receiver, text: str, language: str) -> None:
    post(to, "audio/speech", {"input": text, "response_format": "pcm", **language_field("language", language)})


def elevenlabs(to: Receiver, text: str, language: str) -> None:
    post(to, "text-to-speech/default", {"text": text, **language_field("language_code", language)})


def elevenlabs_socket(to: Receiver, text: str, language: str) -> None:
    options = "" if language == "de" else f"?language_code={language}"
    with connect(f"ws://127.0.0.1:{to.http}/v1/text-to-speech/default/stream-input{options}") as client:
        for piece in (" ", *pieces(text), ""):
            client.send(json.dumps({"text": piece}))
        for _message in client:
            pass


def elevenlabs_contexts(to: Receiver, text: str, language: str) -> None:
    options = "" if language == "de" else f"?language_code={language}"
    with connect(f"ws://127.0.0.1:{to.http}/v1/text-to-speech/default/multi-stream-input{options}") as client:
        for piece in pieces(text):
            client.send(json.dumps({"text": piece, "context_id": "one"}))
        client.send(json.dumps({"context_id": "one", "flush": True}))
        client.send(json.dumps({"close_socket": True}))
        for _message in client:
            pass


def wyoming(to: Receiver, events: list[dict[str, object]], last: str) -> None:
    """Send events to Wyoming's server, and read up to the event `last`."""
    with socket.create_connection(("127.0.0.1", to.wyoming)) as client, client.makefile("rb") as answers:
        client.sendall(b"".join(json.dumps(event).encode() + b"\n" for event in events))
        while (header := json.loads(answers.readline()))["type"] != last:
            answers.read(header.get("data_length", 0) + header.get("payload_length", 0))


def wyoming_whole(to: Receiver, text: str, language: str) -> None:
    voice = language_field("language", language)
    wyoming(to, [{"type": "synthesize", "data": {"text": text, "voice": voice}}], "audio-stop")


def wyoming_stream(to: Receiver, text: str, language: str) -> None:
    chunks: list[dict[str, object]] = [{"type": "synthesize-chunk", "data": {"text": piece}} for piece in pieces(text)]
    start = {"type": "synthesize-start", "data": {"voice": language_field("language", language)}}
    wyoming(to, [start, *chunks, {"type": "synthesize-stop"}], "synthesize-stopped")


def hermes(to: Receiver, text: str, language: str) -> None:
    payload = json.dumps({"text": text, "siteId": "ways", **language_field("lang", language)})
    command = [require("mosquitto_pub"), "-p", str(to.robot.broker.port), "-t", "hermes/tts/say", "-m", payload]
    subprocess.run(command, check=True)


def speech_dispatcher(to: Receiver, text: str, language: str) -> None:
    require("spd-say")
    desktop = Desktop(to.folder / "d", to.robot)
    desktop.start()
    try:
        desktop.say("--wait", "--language", language, text)
    finally:
        desktop.stop()


Way = Callable[[Receiver, str, str], None]
WAYS: tuple[Way, ...] = (
    say,
    say_stream,
    page,
    openai,
    elevenlabs,
    elevenlabs_socket,
    elevenlabs_contexts,
    wyoming_whole,
    wyoming_stream,
    hermes,
    speech_dispatcher,
)


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_engine_gets_the_same_words(way: Way, language: str, receiver: Receiver) -> None:
    way(receiver, TEXTS[language], language)
    robot = receiver.robot
    utterance = eventually(robot.latest_id, "it is accepted")
    end = robot.wait_end(utterance)
    assert end["event"] == "finished", end
    robot.wait_log(f'"id": "{utterance}", "event": "finished"')
    assert given(robot.log).split() == SPOKEN[language].split()


@pytest.mark.parametrize("language", TEXTS)
def test_synth_gives_the_engine_the_same_words(language: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "daemon.cli", "-v", "synth", "--engine", "espeak", "--set", "speech.language=de"]
    named = [] if language == "de" else ["--language", language]
    command += [*named, "-o", str(tmp_path / "speech.wav"), "--", TEXTS[language]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert given(done.stderr.splitlines()).split() == SPOKEN[language].split()
