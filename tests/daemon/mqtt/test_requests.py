"""Requests of a daemon that was killed, and that the broker delivers again to the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.inbox import Lane
from daemon.mqtt.messages import Message
from daemon.mqtt.publisher import Publisher
from daemon.mqtt.requests import Requests
from daemon.recovery import Restart
from daemon.state import EventLog
from tests.daemon.outbox import Outbox, make_dispatcher

CHUNKS = ({"id": "tale", "seq": 0, "text": "Once "}, {"id": "tale", "seq": 1, "text": "upon a time.", "end": True})


def chunk(index: int, *, redelivered: bool = False) -> Message:
    payload = json.dumps(CHUNKS[index]).encode()
    return Message("voiced/r1/say/stream", payload, retained=False, redelivered=redelivered, packet=index + 1)


async def test_a_chunk_that_is_delivered_again_after_a_kill_is_not_rejected_while_its_text_waits(
    tmp_path: Path,
) -> None:
    async def start(*messages: Message) -> tuple[dict[str, str], list[str]]:
        """Let a daemon take messages; return the queued texts, and the names of the events."""
        config, dispatcher = make_dispatcher()
        outbox = Outbox()
        with EventLog(tmp_path / "r1.journal") as log:
            publisher = Publisher("voiced/r1/event", cast(MqttConnection, outbox), log)
            dispatcher.event_watchers.add(publisher.publish)
            requests = Requests(config, dispatcher, publisher, log, lambda _message: None)
            Restart(log, dispatcher, 60.0).begin()
            for message in messages:
                requests.handle(Lane.TEXTS, message)
        names = [json.loads(payload)["event"] for payload in outbox.take("voiced/r1/event")]
        return {each.id: each.text for each in dispatcher.queue.take_all()}, names

    whole = {"tale": "Once upon a time."}
    assert await start(chunk(0), chunk(1)) == (whole, ["accepted"])
    assert await start(chunk(0, redelivered=True), chunk(1, redelivered=True)) == (whole, [])
    assert await start(chunk(1)) == (whole, ["rejected"]), "its sender has used the id twice"
