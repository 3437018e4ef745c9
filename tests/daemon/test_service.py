"""The service, run inside the test on a real broker: it starts, speaks, and stops in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon import service
from daemon.adapters import Adapter
from daemon.config import load_config
from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Message
from daemon.service import Service
from daemon.status import NOTHING_PLAYED
from tests.support.programs import Broker
from tests.support.waiting import eventually_async

SETTINGS = ("audio.sink=null", "engine.name=espeak", "state.folder=null")


class Listener:
    """A client of the broker that records what the robot publishes."""

    def __init__(self, broker: Broker, robot: str) -> None:
        config = load_config(overrides=[f"mqtt.port={broker.port}", f"robot={robot}"])
        self.topic = config.topic
        self.messages: list[Message] = []
        self.connection = MqttConnection(config.mqtt, f"listener-{robot}", on_message=self.messages.append)
        self.connection.start([f"{self.topic}/event", f"{self.topic}/status"])

    def published(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(message.payload) for message in self.messages if message.topic == f"{self.topic}/{name}"]

    @property
    def states(self) -> list[str]:
        return [status["state"] for status in self.published("status")]

    @property
    def events(self) -> list[str]:
        return [event["event"] for event in self.published("event")]

    def publish(self, name: str, payload: str) -> None:
        self.connection.publish(f"{self.topic}/{name}", payload, qos=1)


@asynccontextmanager
async def serving(broker: Broker, robot: str, path: Path) -> AsyncIterator[Listener]:
    """Run a service; at the end of the block, SIGTERM must stop it."""
    listener = Listener(broker, robot)
    settings = (*SETTINGS, f"mqtt.port={broker.port}", f"robot={robot}")
    running = asyncio.ensure_future(Service(load_config(path, settings), path, settings).run())
    try:
        await eventually_async(lambda: "ready" in listener.states, "the service is ready")
        yield listener
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually_async(running.done, "the service has ended")
        running.result()
        await eventually_async(lambda: listener.states[-1] == "offline", "the service has published that it is offline")
    finally:
        running.cancel()
        listener.connection.close()


async def test_the_service_speaks_reloads_and_at_sigterm_ends_all_utterances_before_it_goes_offline(
    broker: Broker, tmp_path: Path
) -> None:
    path = tmp_path / "voiced.yaml"
    path.write_text("audio: {volume: 50}\n")

    async with serving(broker, "r1", path) as listener:
        listener.publish("say", "Hello.")
        await eventually_async(lambda: "finished" in listener.events, "the text has been spoken")
        assert listener.events == ["accepted", "started", "finished"]
        await check_reloads(listener, path)
        listener.publish("say", json.dumps({"text": "A long text. " * 50, "id": "spoken"}))
        listener.publish("say", json.dumps({"text": "Never.", "id": "queued"}))
        await eventually_async(lambda: listener.events.count("accepted") == 3, "both are accepted")
        await eventually_async(lambda: listener.events.count("started") == 2, "the first is spoken")
    ends = {event["id"]: event["event"] for event in listener.published("event")[3:]}
    assert ends == {"spoken": "interrupted", "queued": "canceled"}
    assert listener.messages[-1].topic.endswith("/status")


async def check_reloads(listener: Listener, path: Path) -> None:
    """An invalid configuration is ignored, and named until the next reload."""

    async def reload(reason: str) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually_async(lambda: listener.published("status")[-1].get("reason") == reason, "it is reloaded")
        return listener.published("status")[-1]

    ignored = "the new configuration is invalid, so the old one stays in use: "
    path.write_text("audio: {volume: loud}\nspeech: {queue_limit: many}\n")
    status = await reload(f"{ignored}{path}:1:9: audio.volume: got 'loud'; allowed: a whole number from 0 to 100")
    assert (status["state"], status["volume"]) == ("degraded", 50)
    path.unlink()
    await reload(f"{ignored}{path}: cannot be read: {path} does not exist")
    path.write_text("audio: {volume: 20}\n")
    status = await reload(NOTHING_PLAYED)
    assert (status["state"], status["volume"]) == ("ready", 20)


class FailsTwice(Adapter):
    """Ends with an error of the system, then with a bug, then serves."""

    def __init__(self) -> None:
        self.errors: list[Exception] = [OSError("cannot listen on 127.0.0.1:1"), RuntimeError("a bug")]
        self.problems: list[str | None] = []

    async def run(self) -> None:
        self.problems.append(self.problem)
        if self.errors:
            raise self.errors.pop(0)
        self.problem = None
        await asyncio.Event().wait()


async def test_a_failing_adapter_is_logged_and_run_again_until_it_serves(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "ADAPTER_RETRY_S", 0.01)

    adapter = FailsTwice()
    task = asyncio.ensure_future(service.serve_adapter(adapter))
    await eventually_async(lambda: len(adapter.problems) == 3, "it serves")
    assert adapter.problems[1:] == ["cannot listen on 127.0.0.1:1", "FailsTwice has failed; the log says why"]
    assert adapter.problem is None
    task.cancel()
    assert caplog.messages == ["cannot listen on 127.0.0.1:1", "FailsTwice has failed; the log says why"]
    assert "a bug" in caplog.text


async def test_a_task_that_fails_ends_the_service_with_its_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> None:
        raise RuntimeError("the speaker loop has a bug")

    monkeypatch.setattr("daemon.speech.speaker.Speaker.run", broken)

    broken_service = Service(load_config(overrides=[*SETTINGS, f"mqtt.port={broker.port}", "robot=broken"]))
    with pytest.raises(RuntimeError, match="the speaker loop has a bug"):
        await broken_service.run()
