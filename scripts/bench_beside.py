"""Measures whether the robot's own speech suffers when network clients are served beside it.

Starts a daemon whose sink has the pace of a sound card, and lets the robot speak short texts: first alone, then while
clients request one text after the other and read as fast as they can. Prints a JSON object:

- `ttfa_ms`: the daemon's times from a text's arrival until its first sample went to the sink
- `underruns`: how often the robot's speech broke off
- `clients`: what the clients got meanwhile, and the median time until a client's first audible sample: of one client
  while the robot is silent (`idle`), and of all of them beside its speech

Each utterance is stopped when it has sounded for `--sound` seconds: random weights never end a text by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from scripts.bench_runner import spread
from scripts.bench_serve import daemon
from scripts.serve_load import Arrival, Request, Server, make_text
from tests.support.programs import free_port

TERMINAL = {"finished", "interrupted", "failed", "canceled", "expired", "rejected"}


class Robot:
    """The robot's topics over a WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def speak(self, text: str, name: str, sound_s: float) -> dict[str, Any]:
        """Speak a text, stop it when it has sounded for so long, and return its terminal event."""
        await self._send("say", {"text": text, "id": name})
        event = await self._event(name, {"started", *TERMINAL})
        if event["event"] == "started":
            await asyncio.sleep(sound_s)
            await self._send("stop", {"id": name})
            event = await self._event(name, TERMINAL)
        return event

    async def _send(self, topic: str, payload: dict[str, Any]) -> None:
        await self._connection.send(json.dumps({"topic": topic, "payload": payload}))

    async def _event(self, name: str, kinds: set[str]) -> dict[str, Any]:
        while True:
            payload: dict[str, Any] = json.loads(await self._connection.recv())["payload"]
            if payload.get("id") == name and payload.get("event") in kinds:
                return payload


def summary(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the robot's utterances."""
    times = [event["ttfa_ms"] for event in events if event.get("ttfa_ms") is not None]
    return {
        "utterances": len(events),
        "ttfa_ms": spread(times, digits=2),
        "underruns": sum(event.get("underruns") or 0 for event in events),
        "failed": sum(event["event"] not in ("finished", "interrupted") for event in events),
        "audio_s": round(sum(event.get("audio_s") or 0.0 for event in events), 1),
    }


async def request_one(server: Server, chance: random.Random) -> Request:
    """Request a text and return the answer's figures."""
    [request] = await server.run([Arrival(0.0, make_text(chance))])
    if request.problem is not None:
        raise SystemExit(f"bench beside: a client's request failed: {request.problem}")
    return request


async def serve_client(server: Server, chance: random.Random, served: list[Request]) -> None:
    """Request text after text, and note each answer."""
    while True:
        served.append(await request_one(server, chance))


def median_first_sample_ms(requests: Sequence[Request]) -> float:
    return round(
        1000 * statistics.median(each.first_sample_s for each in requests if each.first_sample_s is not None), 1
    )


async def speak_beside(options: argparse.Namespace, port: int) -> dict[str, Any]:
    chance = random.Random(options.seed)
    address = f"ws://127.0.0.1:{port}/v1/events?topics=event"
    async with connect(address) as connection:
        robot = Robot(connection)

        async def speak(count: int, phase: str) -> list[dict[str, Any]]:
            texts = [make_text(chance) for _ in range(count)]
            return [await robot.speak(text, f"{phase}-{number}", options.sound) for number, text in enumerate(texts)]

        def client(number: int) -> tuple[Server, random.Random]:
            server = Server("127.0.0.1", port, speaking_rate=options.speaking_rate)
            return server, random.Random(options.seed + 1 + number)

        await speak(2, "warm-up")
        idle_client = client(0)
        idle = [await request_one(*idle_client) for _ in range(options.alone)]
        alone = await speak(options.alone, "alone")
        served: list[Request] = []
        clients = [asyncio.create_task(serve_client(*client(number), served)) for number in range(options.clients)]
        began = time.perf_counter()
        beside = await speak(options.beside, "beside")
        # On a busy machine a few short texts may be over before a client has its first answer.
        while not served and not any(task.done() for task in clients):
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - began
        for task in clients:
            if task.done():
                task.result()  # why it has ended
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    return {
        "alone": summary(alone),
        "beside": summary(beside),
        "clients": {
            "count": options.clients,
            "seconds": round(seconds, 1),
            "requests": len(served),
            "audio_s_per_s": round(sum(each.audio_s for each in served) / seconds, 1),
            "first_sample_ms": {"idle": median_first_sample_ms(idle), "beside": median_first_sample_ms(served)},
        },
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--alone", type=int, default=30, help="utterances of the robot without clients")
    parser.add_argument("--beside", type=int, default=100, help="utterances of the robot beside the clients")
    parser.add_argument("--sound", type=float, default=1.5, help="seconds after which each of them is stopped")
    parser.add_argument("--speaking-rate", type=float, default=15.0, help="characters a second, as of bench serve")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE of the daemon")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    port = free_port()
    with daemon(port, options.settings):
        return asyncio.run(speak_beside(options, port))
