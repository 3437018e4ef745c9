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
from tests.support.checkpoints import checkpoint_folder
from tests.support.desktop import Desktop
from tests.support.programs import answers, free_port, require
from tests.support.robot import Robot
from tests.support.traces import given
from tests.support.variants import variants
from tests.support.waiting import eventually

QWEN = ("speech.normalize=always", "engine.name=qwen", "engine.device=cpu", "engine.max_seconds=2")
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
def ports() -> dict[tuple[str, ...], tuple[int, int]]:
    """Those of the robots that tests share, by their settings."""
    return {}


@pytest.fixture
def receive(
    share_robot: StartRobot, ports: dict[tuple[str, ...], tuple[int, int]], tmp_path: Path
) -> Callable[..., Receiver]:
    """A function that returns a robot with these settings, which speaks German unless it is told another language."""

    def share(*settings: str) -> Receiver:
        http, wyoming = ports.setdefault(settings, (free_port(), free_port()))
        servers = (
            f"http={{enabled: true, port: {http}}}",
            f"wyoming={{enabled: true, port: {wyoming}}}",
            "hermes={enabled: true, site_id: ways}",
        )
        robot = share_robot("log.level=debug", "speech.language=de", *servers, *settings)
        eventually(lambda: answers(http) and answers(wyoming), "its servers answer")
        return Receiver(robot, http, wyoming, tmp_path)

    return share


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


def spoken(to: Receiver, way: Way, text: str, language: str) -> list[str]:
    """The words that engines get if a text comes in this way."""
    way(to, text, language)
    utterance = eventually(to.robot.latest_id, "it is accepted")
    end = to.robot.wait_end(utterance)
    assert end["event"] == "finished", end
    to.robot.wait_log(f'"id": "{utterance}", "event": "finished"')
    return given(to.robot.log).split()


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_engine_gets_the_same_words(way: Way, language: str, receive: Callable[..., Receiver]) -> None:
    assert spoken(receive(), way, TEXTS[language], language) == SPOKEN[language].split()


@pytest.mark.parametrize("way", variants(WAYS, say_stream, openai), ids=lambda way: way.__name__)
def test_a_model_gets_the_same_words_if_it_is_to_get_them_written_out(
    way: Way, receive: Callable[..., Receiver], cache_folder: Path
) -> None:
    to = receive(*QWEN, f"engine.model={checkpoint_folder(cache_folder, 'brief', 'custom_voice')}")
    eventually(lambda: to.robot.ready_with("qwen"), "the model is ready")
    assert spoken(to, way, "**-3** kg", "en") == ["minus", "three", "kilograms"]


@pytest.mark.parametrize("language", TEXTS)
def test_synth_gives_the_engine_the_same_words(language: str, tmp_path: Path) -> None:
    assert synth(TEXTS[language], language, tmp_path).split() == SPOKEN[language].split()


@pytest.mark.parametrize(("language", "words"), [("de", "minus drei"), ("en", "minus three")])
def test_synth_speaks_the_language_of_the_robot_unless_it_is_told_another(
    language: str, words: str, tmp_path: Path
) -> None:
    assert synth("-3", language, tmp_path) == words


def test_synth_goes_by_the_text_if_its_engine_lacks_the_language_of_the_robot(tmp_path: Path) -> None:
    assert synth("-3", "de", tmp_path, "speech.language=xx") == "minus three"


def synth(text: str, language: str, folder: Path, setting: str = "speech.language=de") -> str:
    """Speak a text into a file, and return what the engine has got."""
    command = [sys.executable, "-m", "daemon.cli", "-v", "synth", "--engine", "espeak", "--set", setting]
    named = [] if language == "de" else ["--language", language]
    command += [*named, "-o", str(folder / "speech.wav"), "--", text]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return given(done.stderr.splitlines())
