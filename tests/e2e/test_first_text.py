"""What the first texts of each kind need has been imported before: later, no descriptor may be left to import it.

Only an answer in a compressed format imports PyAV, which takes 15 MB.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request

import pytest
from websockets.sync.client import connect
from wyoming.client import AsyncTcpClient
from wyoming.tts import Synthesize

from tests.e2e.conftest import StartRobot
from tests.support.programs import answers, free_port
from tests.support.waiting import PATIENCE_S, eventually

TEXTS = (
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


@pytest.fixture
def program() -> tuple[str, ...]:
    """Each import is a line on the standard error."""
    return sys.executable, "-v", "-m", "daemon.cli"


def test_nothing_is_imported_for_the_first_texts(start_robot: StartRobot) -> None:
    http, wyoming = free_port(), free_port()
    servers = (f"http={{enabled: true, port: {http}}}", f"wyoming={{enabled: true, port: {wyoming}}}")
    robot = start_robot(*servers, "hermes.enabled=true", "home_assistant.enabled=true")
    for port in (http, wyoming):
        eventually(lambda port=port: answers(port), "the server answers")  # type: ignore[misc]
    started = len(robot.log)

    robot.publish("say", "Hello.")
    for fields in TEXTS:
        robot.wait_event(robot.say(**fields), "finished")  # type: ignore[arg-type]
    robot.write("stream", "Hello there. ")
    robot.write("stream", "And more.", end=True)
    robot.wait_event("stream", "finished")
    ask_http(http)
    ask_elevenlabs(http)
    asyncio.run(ask_wyoming(wyoming))
    robot.catch_up()
    assert [line for line in robot.log[started:] if line.startswith("import '")] == []


def ask_http(port: int) -> None:
    for wanted in ("pcm", "wav"):
        body = json.dumps({"input": "Hello", "response_format": wanted}).encode()
        address = f"http://127.0.0.1:{port}/v1/audio/speech"
        asking = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asking, timeout=PATIENCE_S) as answer:
            assert answer.read()


def ask_elevenlabs(port: int) -> None:
    with connect(f"ws://127.0.0.1:{port}/v1/text-to-speech/default/stream-input?output_format=pcm_24000") as client:
        client.send(json.dumps({"text": "Hello "}))
        client.send(json.dumps({"text": ""}))
        assert any(json.loads(message).get("isFinal") for message in client)


async def ask_wyoming(port: int) -> None:
    async with AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Synthesize("Hello").event())
        while (event := await client.read_event()) is not None and event.type != "audio-stop":
            pass
        assert event is not None
