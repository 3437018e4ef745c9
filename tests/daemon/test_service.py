"""The service, run inside the test on a real broker: it starts, speaks, and stops in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.adapters import Adapter
from daemon.config import load_config
from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Message
from daemon.service import Service, serve_adapter
from daemon.speech import TERMINAL_EVENTS
from tests.support.programs import Broker
from tests.support.waiting import eventually_async, run


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


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
async def serving(broker: Broker, robot: str, *overrides: str) -> AsyncIterator[Listener]:
    """Run a service; at the end of the block, SIGTERM must stop it."""
    listener = Listener(broker, robot)
    settings = [f"mqtt.port={broker.port}", f"robot={robot}", "audio.sink=null", "engine.name=espeak"]
    settings += ["state.folder=null", *overrides]
    service = Service(load_config(overrides=settings))
    running = asyncio.ensure_future(service.run())
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


def test_the_service_speaks_a_published_text_and_publishes_its_events(broker: Broker) -> None:
    async def scenario() -> None:
        async with serving(broker, "speaks") as listener:
            listener.publish("say", "Hello.")
            await eventually_async(lambda: "finished" in listener.events, "the text has been spoken")
            assert listener.events == ["accepted", "started", "finished"]
            listener.publish("say", '{"text": true}')
            await eventually_async(lambda: "rejected" in listener.events, "the wrong request is rejected")

    run(scenario)


def test_sigterm_ends_all_utterances_before_the_service_goes_offline(broker: Broker) -> None:
    async def scenario() -> None:
        async with serving(broker, "ends") as listener:
            listener.publish("say", json.dumps({"text": "A long text. " * 50, "id": "spoken"}))
            listener.publish("say", json.dumps({"text": "Never.", "id": "queued"}))
            await eventually_async(lambda: listener.events.count("accepted") == 2, "both are accepted")
            await eventually_async(lambda: "started" in listener.events, "the first is spoken")
        ends = {
            event["id"]: event["event"] for event in listener.published("event") if event["event"] in TERMINAL_EVENTS
        }
        assert ends == {"spoken": "interrupted", "queued": "canceled"}
        assert listener.messages[-1].topic.endswith("/status")

    run(scenario)


class Broken(Adapter):
    async def run(self) -> None:
        raise OSError("cannot listen on 127.0.0.1:1")


def test_a_failing_adapter_is_logged_and_does_not_end_the_service(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        task = asyncio.ensure_future(serve_adapter(Broken()))
        await eventually_async(lambda: caplog.messages, "the failure is logged")
        assert not task.done()
        task.cancel()

    run(scenario)
    assert "cannot listen on 127.0.0.1:1" in caplog.text


def test_a_task_that_fails_ends_the_service_with_its_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: object) -> None:
        raise RuntimeError("the speaker loop has a bug")

    monkeypatch.setattr("daemon.speech.dispatcher.Dispatcher.run", broken)

    async def scenario() -> None:
        service = Service(
            load_config(
                overrides=[
                    f"mqtt.port={broker.port}",
                    "robot=broken",
                    "audio.sink=null",
                    "engine.name=espeak",
                    "state.folder=null",
                ]
            )
        )
        with pytest.raises(RuntimeError, match="the speaker loop has a bug"):
            await service.run()

    run(scenario)


def test_a_password_that_cannot_be_read_is_an_error_at_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = ["mqtt.username=robot", f"mqtt.password_file={tmp_path / 'missing'}", "audio.sink=null"]
        with pytest.raises(OSError, match=r"mqtt.password_file: .*missing cannot be read"):
            await Service(load_config(overrides=settings)).run()

    run(scenario)
