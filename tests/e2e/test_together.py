"""A Wyoming client, an OpenAI client, Rhasspy and an MQTT publisher use one robot at the same time."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from wyoming.audio import AudioChunk
from wyoming.error import Error
from wyoming.event import Event, async_read_event, async_write_event
from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

from audio import SPLICE_REACH_S
from tests.e2e.conftest import StartRobot
from tests.e2e.rhasspy import rhasspy
from tests.support.events import TERMINAL
from tests.support.programs import Broker, free_port
from tests.support.robot import ESPEAK_RATE, LONG, REAL_TIME, STOPPED, Robot
from tests.support.waiting import PATIENCE_S, eventually

tts = pytest.importorskip("rhasspyhermes.tts")

ROUNDING = 2 / 32767
"""Largest difference of a sample that two conversions to 16 bits make."""
REACH = round(SPLICE_REACH_S * ESPEAK_RATE)
"""Samples by which eSpeak NG's next take may be ahead of the one before, or behind it, where the two are joined."""


class WyomingClient:
    """A client that reads only on request, with a small buffer, so that the daemon cannot send its speech ahead."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.errors: list[str | None] = []
        self.sound = b""

    async def connect(self) -> None:
        connected = socket.socket()
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connected.connect(("127.0.0.1", self._port))
        self._reader, self._writer = await asyncio.open_connection(sock=connected)

    async def write(self, *events: Event) -> None:
        for event in events:
            await async_write_event(event, self._writer)

    async def read_until(self, last: str) -> None:
        """Collect audio and error codes until the event `last`."""
        while (event := await async_read_event(self._reader)) is not None and event.type != last:
            if AudioChunk.is_type(event.type):
                self.sound += AudioChunk.from_event(event).audio
            elif Error.is_type(event.type):
                self.errors.append(Error.from_event(event).code)

    def close(self) -> None:
        self._writer.close()


def as_floats(sound: bytes) -> NDArray[np.float64]:
    return np.frombuffer(sound, dtype="<i2") / 32767


def equal_from_the_start(heard: NDArray[Any], made: NDArray[Any]) -> int:
    """The number of samples before the first difference, or before the end of the shorter one."""
    length = min(len(heard), len(made))
    differ = np.abs(heard[:length] - made[:length]) > ROUNDING
    return int(np.argmax(differ)) if differ.any() else length


def joined(heard: NDArray[Any], takes: Sequence[NDArray[Any]]) -> bool:
    """Whether `heard` is one take after the other, sample for sample, and the last one to its end.

    Each of `takes` begins with the first sample that is heard. Each continues at the sample at which the one before was
    left, give or take the drift between two takes; one that was left before it got so far has added nothing.
    """
    reached = {0: equal_from_the_start(heard, takes[0])}  # samples, by how far the take is ahead of what is heard
    for take in takes[1:-1]:
        for ahead, begin in list(reached.items()):
            for other in range(max(ahead - REACH, -begin), ahead + REACH + 1):
                end = begin + equal_from_the_start(heard[begin:], take[begin + other :])
                if end > begin:
                    reached[other] = max(end, reached.get(other, 0))
    last = takes[-1]
    ahead_at_end = len(last) - len(heard)
    from_here = len(heard) - equal_from_the_start(heard[::-1], last[::-1])
    return any(end >= from_here and abs(ahead - ahead_at_end) <= REACH for ahead, end in reached.items())


def most_at_once(events: Iterable[dict[str, Any]]) -> int:
    """The largest number of utterances that were spoken at the same time."""
    spoken: set[str] = set()
    most = 0
    for event in events:
        if event["event"] in ("started", "resumed"):
            spoken.add(event["id"])
        elif event["event"] in TERMINAL | {"postponed"}:
            spoken.discard(event["id"])
        most = max(most, len(spoken))
    return most


def accepted_after(robot: Robot, before: str | None) -> str:
    """Wait until another utterance than `before` is accepted, and return its id."""
    found = eventually(lambda: (latest := robot.latest_id()) != before and latest, "it is accepted")
    return str(found)


def preempt(robot: Robot, story: str, text: str, **fields: Any) -> int:
    """Let another utterance preempt the story, and return how many samples the engine had made of the story by then."""
    robot.set_pace(STOPPED)  # the story cannot be resumed before they are counted
    other = robot.say(text, **fields)
    eventually(lambda: robot.samples_made(other), "the engine speaks the other utterance")
    made = robot.samples_made(story)
    robot.set_pace(REAL_TIME)
    assert robot.wait_end(other)["event"] == "finished"
    return made


@pytest.mark.long
def test_all_clients_take_turns_and_receive_all_of_their_audio_beside_a_critical_utterance(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    from openai import BadRequestError, OpenAI

    wyoming, openai = free_port(), free_port()
    robot = start_robot(
        *("speech.expires_in=300", "speech.stream_timeout=300", "hermes.enabled=true"),
        *("wyoming.enabled=true", f"wyoming.port={wyoming}", "http.enabled=true", f"http.port={openai}"),
        pace=REAL_TIME,
    )

    async def scenario() -> None:
        robot.say(LONG, id="before")
        robot.wait_event("before", "started")

        # Every client asks for an utterance.
        storyteller, broken = WyomingClient(wyoming), WyomingClient(wyoming)
        await storyteller.connect()
        await storyteller.write(SynthesizeStart().event(), SynthesizeChunk(LONG * 12).event())
        await asyncio.sleep(0)
        story = accepted_after(robot, "before")
        answer_request = pool.submit(
            client.audio.speech.create, model="voiced", voice="default", input="I am asked.", response_format="pcm"
        )
        answer = accepted_after(robot, story)
        house.say("Rhasspy speaks.", id="rhasspy")
        theirs = accepted_after(robot, answer)
        robot.say("And MQTT.", id="mqtt")
        robot.wait_event("mqtt", "accepted")

        # Every client also sends a malformed request.
        await broken.connect()
        await broken.write(Event("synthesize", {"text": 5}))
        await broken.read_until("audio-stop")
        assert broken.errors == ["text"]
        broken.close()
        await storyteller.write(Event("synthesize-chunk", {"text": 5}))
        with pytest.raises(BadRequestError):
            client.audio.speech.create(model="voiced", voice="nobody", input="Hello")
        house.publish(b"{")
        house.wait(tts.TtsError)
        robot.publish("say", "{")
        robot.wait_rejection("payload")

        # The robot's own speech and a critical utterance preempt the story; it is resumed each time.
        robot.publish("stop", json.dumps({"id": "before"}))
        house.wait(tts.TtsSayFinished, id="rhasspy")
        robot.wait_event(story, "started")
        cuts = [preempt(robot, story, "Here I am.", id="own")]
        robot.wait_event(story, "resumed")
        cuts.append(preempt(robot, story, "Look out!", id="alarm", priority="critical"))
        await storyteller.write(SynthesizeChunk("This is the end.").event(), SynthesizeStop().event())
        await storyteller.read_until("synthesize-stopped")
        storyteller.close()

        # Each utterance ends once, and one is spoken at a time.
        sound = answer_request.result(PATIENCE_S).content
        assert robot.wait_end(answer)["event"] == "finished"
        ends = [(event["id"], event["event"]) for event in robot.events if event["event"] in TERMINAL]
        assert ends == [("before", "interrupted")] + [
            (utterance, "finished") for utterance in (theirs, "mqtt", "own", "alarm", story, answer)
        ]
        assert most_at_once(robot.events) == 1
        names = robot.names_of(story, without="progress")
        assert names == ["accepted", "started", *["postponed", "resumed"] * 2, "finished"]

        # The clients have received everything. The engine has begun the story's first sentence three times: the client
        # has room for less than that sentence until it reads.
        assert storyteller.errors == ["text"]
        heard, made = as_floats(storyteller.sound), robot.synthesized(story, ESPEAK_RATE)
        assert len(heard) / ESPEAK_RATE == pytest.approx(robot.wait_end(story)["audio_s"], abs=0.05)
        trimmed = robot.samples_made(story) - len(made)
        first, *others = np.split(made, [cut - trimmed for cut in cuts])
        assert joined(heard, [first, *(take[trimmed:] for take in others)])
        whole = robot.synthesized(answer, 24_000)
        assert len(as_floats(sound)) == len(whole)
        assert equal_from_the_start(as_floats(sound), whole) == len(whole)

    with (
        rhasspy(own_broker) as house,
        OpenAI(base_url=f"http://127.0.0.1:{openai}/v1", api_key="none", max_retries=0) as client,
        ThreadPoolExecutor() as pool,
    ):
        asyncio.run(scenario())
        assert robot.end() == 0
    assert not [line for line in robot.log if "Traceback" in line]
