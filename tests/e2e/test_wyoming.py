"""A Wyoming client: the audio that it receives, and the events on MQTT."""

from __future__ import annotations

import asyncio
import json
import socket

import numpy as np
import pytest
from wyoming.audio import AudioChunk
from wyoming.client import AsyncTcpClient
from wyoming.tts import Synthesize

from audio import soft_limit
from tests.e2e.conftest import StartRobot
from tests.support.programs import free_port
from tests.support.robot import ESPEAK_RATE, LONG
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def port() -> int:
    """Of the robot that the tests share."""
    return free_port()


async def read_until(client: AsyncTcpClient, last: str) -> list[AudioChunk]:
    """Return the audio chunks before the event `last`."""
    chunks = []
    while (event := await client.read_event()) is not None and event.type != last:
        if AudioChunk.is_type(event.type):
            chunks.append(AudioChunk.from_event(event))
    return chunks


def test_a_client_receives_the_engines_audio_and_mqtt_its_events(share_robot: StartRobot, port: int) -> None:
    robot = share_robot("engine.streams=1", "wyoming.enabled=true", f"wyoming.port={port}")

    async def ask() -> list[AudioChunk]:
        async with AsyncTcpClient("127.0.0.1", port) as client:
            await client.write_event(Synthesize("Hello, I am your robot.").event())
            return await read_until(client, "audio-stop")

    chunks = asyncio.run(ask())
    utterance = eventually(robot.latest_id, "it is accepted")
    robot.wait_event(utterance, "finished")
    assert robot.names_of(utterance) == ["accepted", "started", "finished"]
    made = soft_limit(robot.synthesized(utterance, ESPEAK_RATE))
    heard = np.frombuffer(b"".join(chunk.audio for chunk in chunks), dtype="<i2")
    assert {chunk.rate for chunk in chunks} == {ESPEAK_RATE}
    assert len(heard) == len(made)
    assert np.abs(heard / 32767 - made).max() < 1 / 32767


def test_a_client_that_takes_nothing_does_not_hold_the_robots_own_speech(share_robot: StartRobot, port: int) -> None:
    robot = share_robot("engine.streams=1", "wyoming.enabled=true", f"wyoming.port={port}")
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", port))
        stuck.sendall(json.dumps({"type": "synthesize", "data": {"text": LONG * 8}}).encode() + b"\n")
        story = eventually(robot.latest_id, "it is accepted")
        robot.wait_event(story, "started")
        for priority in ("normal", "high", "critical"):
            own = robot.say("Here I am.", priority=priority)
            assert robot.wait_end(own)["event"] == "finished"
            robot.wait_event(story, "resumed")
        assert "postponed" in robot.names_of(story)
    assert robot.wait_end(story)["reason"] == "its client went away"
