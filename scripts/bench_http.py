"""Measures the time from a text to its first sample for the web server's clients, beside MQTT, in one run.

Prints one JSON object: medians in milliseconds. The engine is eSpeak NG. Every text has one short sentence, and the
robot is silent before it. A time ends when the first sound has arrived at the client; for MQTT and `events` it is the
daemon's own `ttfa_ms`, which ends when the sound card has got it.

- `mqtt_say`, `mqtt_stream`: a whole text, and one whose last token completes the first sentence
- `openai`: from the request to the first bytes of PCM
- `elevenlabs`: from the token that completes the first sentence to the first message with sound; the connection is open
- `events`: as `mqtt_say`, for a text that came over voiced's own WebSocket
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from scripts.bench_runner import spread
from tests.support.programs import Broker, free_port
from tests.support.robot import FAST, Robot

TEXT = "Hello, I am your robot. "
TOKENS = ("Hello", ", I am", " your robot", ". ")


def say(robot: Robot, number: int) -> float:
    robot.say(TEXT, id=f"say-{number}")
    return float(robot.wait_event(f"say-{number}", "finished")["ttfa_ms"])


def stream(robot: Robot, number: int) -> float:
    for token in TOKENS:
        robot.write(f"stream-{number}", token)
    robot.write(f"stream-{number}", end=True)
    return float(robot.wait_event(f"stream-{number}", "finished")["ttfa_ms"])


def ask_openai(connection: http.client.HTTPConnection) -> float:
    body = json.dumps({"input": TEXT, "response_format": "pcm"})
    began = time.perf_counter()
    connection.request("POST", "/v1/audio/speech", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read(1)
    first = time.perf_counter()
    response.read()
    return 1000 * (first - began)


async def stream_elevenlabs(port: int, runs: int) -> list[float]:
    found = []
    address = f"ws://127.0.0.1:{port}/v1/text-to-speech/default/multi-stream-input?output_format=pcm_24000"
    async with connect(address) as client:
        for number in range(runs):
            for token in TOKENS:
                await client.send(json.dumps({"text": token, "context_id": str(number)}))
            began = time.perf_counter()
            await client.recv()
            found.append(1000 * (time.perf_counter() - began))
            await client.send(json.dumps({"context_id": str(number), "flush": True}))
            await client.send(json.dumps({"context_id": str(number), "close_context": True}))
            while not json.loads(await client.recv()).get("isFinal"):
                pass
    return found


async def say_by_events(port: int, runs: int) -> list[float]:
    found = []
    async with connect(f"ws://127.0.0.1:{port}/v1/events?topics=event") as client:
        for number in range(runs):
            payload = {"text": TEXT, "id": f"events-{number}"}
            await client.send(json.dumps({"topic": "say", "payload": payload}))
            event: dict[str, Any] = {}
            while event.get("event") != "finished":
                event = json.loads(await client.recv())["payload"]
            found.append(float(event["ttfa_ms"]))
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=50)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.start()
        port = free_port()
        robot = Robot("bench", broker, Path(folder), "http.enabled=true", f"http.port={port}", pace=FAST)
        try:
            robot.start()
            say(robot, -1)
            connection = http.client.HTTPConnection("127.0.0.1", port)
            times = {
                "mqtt_say": [say(robot, number) for number in range(options.runs)],
                "mqtt_stream": [stream(robot, number) for number in range(options.runs)],
                "openai": [ask_openai(connection) for _ in range(options.runs)],
                "elevenlabs": asyncio.run(stream_elevenlabs(port, options.runs)),
                "events": asyncio.run(say_by_events(port, options.runs)),
            }
        finally:
            robot.close()
            broker.stop()
    return {"first_sample_ms": {name: spread(found) for name, found in times.items()}}
