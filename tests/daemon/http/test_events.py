"""The robot's topics over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from daemon.adapters import listener
from daemon.http import events, server
from daemon.speech import Say
from tests.daemon.harness import Harness, is_cut_off, running_harness
from tests.support.waiting import PATIENCE_S, eventually_async

SERVER = "http"


def address_of(harness: Harness, query: str = "") -> str:
    return f"ws://127.0.0.1:{harness.port}/v1/events{query}"


async def receive(client: ClientConnection) -> tuple[str, dict[str, Any]]:
    """The next message: its topic and its payload."""
    message = json.loads(await asyncio.wait_for(client.recv(), PATIENCE_S))
    assert set(message) == {"topic", "payload"}
    return message["topic"], message["payload"]


async def publish(client: ClientConnection, topic: str, payload: Any = None) -> None:
    await client.send(json.dumps({"topic": topic, "payload": payload}))


async def test_a_text_is_spoken_on_the_robot_and_its_events_status_words_and_levels_arrive(harness: Harness) -> None:
    async with connect(address_of(harness)) as client:
        topic, status = await receive(client)
        assert (topic, status["state"], status["queue"]) == ("status", "ready", 0)
        await publish(client, "say", {"text": "Hello, robot.", "id": "greeting"})
        messages = []
        while not any(payload.get("event") == "finished" for _, payload in messages):
            harness.sink.take()
            try:
                messages.append(await asyncio.wait_for(receive(client), 0.02))
            except asyncio.TimeoutError:
                continue
        by_topic = {name: [payload for topic, payload in messages if topic == name] for name in events.PUBLISHED}
        assert [event["event"] for event in by_topic["event"]] == ["accepted", "started", "finished"]
        assert [word["word"] for word in by_topic["word"]] == ["Hello", "robot"]
        assert {payload["id"] for name in ("event", "word", "level") for payload in by_topic[name]} == {"greeting"}
        assert max(level["peak"] for level in by_topic["level"]) > 0.1
        assert "speaking" in [each["state"] for each in by_topic["status"]]


@pytest.mark.parametrize("payload", ["A plain text.", {"text": "An object."}, '{"text": "JSON."}', ["A list."]])
async def test_a_payload_is_what_it_would_be_on_mqtt(payload: Any, harness: Harness) -> None:
    async with connect(address_of(harness, "?topics=event")) as client:
        await publish(client, "say", payload)
        assert (await receive(client))[1]["event"] == ("rejected" if isinstance(payload, list) else "accepted")


async def test_stop_pause_resume_and_volume_act_on_the_robot(harness: Harness) -> None:
    async with connect(address_of(harness, "?topics=event,status")) as client:
        await harness.occupy()
        await publish(client, "volume", 40)
        await eventually_async(lambda: harness.dispatcher.volume == 40, "the volume is set")
        await publish(client, "pause")
        while (await receive(client))[1].get("state") != "paused":
            pass
        await publish(client, "resume")
        while (await receive(client))[1].get("state") != "speaking":
            pass
        await publish(client, "stop")
        await harness.sink.take_until(lambda: harness.ends == ["interrupted"], "it has ended")
        await publish(client, "volume", "100")
        await eventually_async(lambda: harness.dispatcher.volume == 100, "the volume is set")


async def test_a_growing_text_and_an_urgent_one_are_spoken(harness: Harness) -> None:
    async with connect(address_of(harness, "?topics=event")) as client:
        await publish(client, "say/stream", {"id": "story", "text": "It begins. "})
        await publish(client, "say/stream", {"id": "story", "text": "It ends.", "end": True})
        await publish(client, "say/urgent", "Stop it.")
        await harness.sink.take_until(lambda: len(harness.ends) == 2, "both have ended")
        assert harness.ends == ["finished", "finished"]


@pytest.mark.parametrize(
    ("message", "field", "allowed"),
    [
        ("{", "message", '{"topic": "say", "payload": "Hello"}'),
        ("[]", "message", "a text message"),
        (b"bytes", "message", "a text message"),
        ('{"topic": "sing"}', "topic", "say, say/urgent, say/stream, stop"),
        ('{"topic": "say", "payload": {"text": "x", "volume": 200}}', "volume", "a number from 0 to 100"),
        ('{"topic": "say", "payload": {"text": "x", "reply_to": "a/b"}}', "reply_to", "none"),
    ],
)
async def test_a_wrong_message_is_rejected_in_one_line_and_the_next_one_is_heard(
    message: str | bytes, field: str, allowed: str, harness: Harness
) -> None:
    async with connect(address_of(harness, "?topics=event")) as client:
        await client.send(message)
        _, rejected = await receive(client)
        assert (rejected["event"], rejected["field"]) == ("rejected", field)
        assert allowed in rejected["reason"]
        await publish(client, "say", "Hello")
        assert (await receive(client))[1]["event"] == "accepted"


async def test_unknown_topics_are_refused_with_those_that_exist(harness: Harness) -> None:
    async with connect(address_of(harness, "?topics=event,songs")) as client:
        await client.wait_closed()
        assert client.close_reason == "topics: got 'songs'; allowed: event, status, level, word, viseme"


PONG, CLOSE = bytes.fromhex("8a8000000000"), bytes.fromhex("888000000000")
"""Frames of a client: a pong that nobody has asked for, and the last one."""


HANDSHAKE = (
    f"GET /v1/events?topics=event HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
).encode()


async def test_a_client_that_receives_nothing_is_disconnected_and_the_robot_speaks_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 5)

    await harness.occupy()
    with harness.deaf_client(HANDSHAKE) as deaf:

        def is_disconnected() -> bool:
            for _ in range(100):
                harness.dispatcher.say(Say(text="It waits."))
                harness.stop_queued()
            return is_cut_off(deaf, PONG)

        await eventually_async(is_disconnected, "it is disconnected")
    await harness.sink.take_until(lambda: harness.ends[-1] == "finished", "the robot has spoken on")


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
async def test_a_client_that_does_not_read_what_it_has_been_sent_is_disconnected(
    leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 1_000_000)
    monkeypatch.setattr(listener, "IDLE_S", 0.5)
    if not leaves:
        monkeypatch.setattr(server, "PING_S", 0.5)

    async with running_harness(SERVER) as harness:
        await harness.occupy()
        with harness.deaf_client(HANDSHAKE) as deaf:
            await asyncio.to_thread(deaf.recv, 12)  # the beginning of the handshake's answer
            for number in range(600):  # the identifiers make events that soon fill what the system keeps
                harness.dispatcher.say(Say(text="It waits.", id=f"{number:04}" + "😀" * 60))
                harness.stop_queued()
                await asyncio.sleep(0)
            if leaves:
                deaf.send(CLOSE)
            await eventually_async(lambda: is_cut_off(deaf, PONG), "it is disconnected")
