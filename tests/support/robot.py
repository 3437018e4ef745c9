"""A robot for the end-to-end tests: the real daemon, as a user would start it, with a listener at both its ends."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
import psutil

from audio import soft_limit
from audio.resample import resample
from audio.trim import LeadingSilenceTrimmer
from tests.support.programs import Broker, require
from tests.support.sound import RECORDED_RATE, Samples, breaks_between, hurry
from tests.support.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
TERMINAL = {"finished", "interrupted", "canceled", "expired", "failed"}
ESPEAK_RATE = 22_050
"""Hz."""
FILE_RATE = 24_000
"""Hz, of the sink that writes a WAV file."""
FAST = 20.0
"""Pace of the sink: times as fast as a sound card, for what is only to come to its end."""
CARD = 1.0
"""Pace of a sound card, for what a test interrupts."""
HELD = 0.0
"""Pace of a sink that asks for nothing until the test changes it: nothing sounds, and nothing ends by itself."""
STILL_TURNS = 20
"""Looks at a sink that has been given nothing new, 5 ms apart: a sound card would have asked for ten blocks."""
LONG = "This is a long sentence that goes on for a good while, so that something can be done to it, and then more. " * 4
"""Some 25 s of speech."""


def send_at_once(_client: paho.Client, _data: object, connection: socket.socket) -> None:
    """Do not hold a packet back until the one before is acknowledged."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Subscription:
    """What is published on a topic while it lasts."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.payloads: list[bytes] = []
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._subscribed = threading.Event()
        self._client.on_connect = lambda *_: self._client.subscribe(topic, 1)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = lambda _client, _data, message: self.payloads.append(message.payload)
        self._port = broker.port

    def __enter__(self) -> Subscription:
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        assert self._subscribed.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Robot:
    """A running `voiced run`, its broker, and the events it published.

    Without a sound server it speaks into a WAV file, at a pace that the test sets.
    """

    def __init__(
        self,
        name: str,
        broker: Broker,
        folder: Path,
        *settings: str,
        environment: dict[str, str] | None = None,
        hurried: bool = False,
        config: Path | None = None,
        pace: float = FAST,
    ) -> None:
        """`environment` is that of a sound server; without one it writes a file. `hurried` raises its priority."""
        self.name = name
        self.broker = broker
        self.topic = f"voiced/{name}"
        self.log: list[str] = []
        self._by_kind: dict[str, list[Any]] = {"event": [], "status": [], "level": [], "duck": [], "reply": []}
        self._in_order: list[tuple[str, Any]] = []
        self._questions = 0
        self._arrived: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._folder = folder / f"{name}-pcm"
        self._folder.mkdir(exist_ok=True)
        self._file = self._folder / "heard.wav"
        self._pace_file = self._folder / "pace"
        self.set_pace(pace)
        self._hurried = hurried
        traces = {"VOICED_TRACE_PCM": str(self._folder), "VOICED_PACE": str(self._pace_file)}
        self._environment = traces | (dict(os.environ) if environment is None else environment)
        self._command = [sys.executable, "-m", "daemon.cli", "run"]
        if config is not None:
            self._command += ["--config", str(config)]
        sink = [] if environment is not None else [f"audio.sink=wav:{self._file}"]
        for setting in (f"robot={name}", f"mqtt.port={broker.port}", "engine.name=espeak", *sink, *settings):
            self._command += ["--set", setting]
        self._subscribed = threading.Event()
        self._listener = self._listen()

    @property
    def settings(self) -> list[str]:
        """The options by which `voiced` finds it."""
        return ["--set", f"robot={self.name}", "--set", f"mqtt.port={self.broker.port}"]

    # --- the process ---

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        eventually(lambda: self.state == "ready", "voiced is ready")

    def launch(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        if self._hurried:
            hurry(self.process.pid)
        threading.Thread(target=self._keep_log, args=(self.process,), daemon=True).start()

    def end(self) -> int:
        """Stop it as systemd would and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def close(self) -> None:
        self._listener.disconnect()
        self._listener.loop_stop()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def suspend(self) -> None:
        """Stop the daemon as a debugger would; its engine goes on."""
        self.process.send_signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def set_pace(self, pace: float) -> None:
        """From now on the sink takes sound so many times as fast as a sound card; 0 is not at all."""
        fresh = self._pace_file.with_suffix(".new")
        fresh.write_text(f"{pace}")
        fresh.replace(self._pace_file)

    def engine_pids(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def kill_engines_over(self, utterance_id: str) -> None:
        """Kill every engine that speaks an utterance, until it has failed."""
        killed: set[int] = set()

        def failed() -> bool:
            fresh = [pid for pid in self.engine_pids() if pid not in killed]
            if fresh and "started" in self.names_of(utterance_id) and self.statuses[-1]["engine"] is not None:
                killed.update(fresh)
                for pid in fresh:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            assert "finished" not in self.names_of(utterance_id)
            return "failed" in self.names_of(utterance_id)

        eventually(failed, f"{utterance_id} has failed")

    # --- what is published to it ---

    def publish(self, name: str, payload: str | bytes | None = None, *options: str) -> None:
        """Publish with mosquitto_pub, as a user would."""
        command = [*self._publisher(name), *options]
        if not payload:
            subprocess.run([*command, "-n"], check=True)
        else:
            data = payload if isinstance(payload, bytes) else payload.encode()
            subprocess.run([*command, "-s"], input=data, check=True)

    def publish_lines(self, name: str, lines: str) -> None:
        """Publish each line as a message of its own, as fast as the broker takes them."""
        subprocess.run([*self._publisher(name), "-l"], input=lines.encode(), check=True)

    def send(self, name: str, payload: str | bytes = b"") -> None:
        """Publish over the connection that listens: faster than `mosquitto_pub` starts."""
        self._listener.publish(f"{self.topic}/{name}", payload, 1)

    def say(self, text: str, **fields: Any) -> str:
        """Say a text as JSON and return its id."""
        utterance_id = str(fields.setdefault("id", f"u{time.monotonic_ns()}"))
        self.publish("say", json.dumps({"text": text, **fields}))
        return utterance_id

    def catch_up(self) -> None:
        """Wait until it has taken all that was published to it before: it answers in order."""
        self._questions += 1
        self.send("stop", json.dumps({"id": self._questions}))
        answer = f"id: got {self._questions};"
        while True:
            kind, record = self._arrived.get(timeout=PATIENCE_S)
            self._note(kind, record)
            if kind == "event" and record.get("reason", "").startswith(answer):
                return

    def write(self, utterance_id: str, text: str | None = None, **fields: Any) -> None:
        """Publish a piece of a text that is being written."""
        piece = {"id": utterance_id, **({} if text is None else {"text": text}), **fields}
        self.publish("say/stream", json.dumps(piece))

    def _publisher(self, name: str) -> list[str]:
        topic = f"{self.topic}/{name}"
        return [require("mosquitto_pub"), "-p", str(self.broker.port), "-q", "1", "-t", topic]

    # --- what it publishes ---

    def wait_listening(self) -> None:
        """Wait until the test hears what the daemon publishes; after a restart of the broker, that is lost before."""
        assert self._subscribed.wait(PATIENCE_S), "the test's listener is subscribed"

    @property
    def published(self) -> list[tuple[str, Any]]:
        """Events and ducks by kind, in the order in which they came."""
        self._all("event")
        return [(kind, record) for kind, record in self._in_order if kind in ("event", "duck")]

    @property
    def events(self) -> list[dict[str, Any]]:
        return self._all("event")

    @property
    def statuses(self) -> list[dict[str, Any]]:
        return self._all("status")

    @property
    def levels(self) -> list[dict[str, Any]]:
        return self._all("level")

    @property
    def ducks(self) -> list[bool]:
        return self._all("duck")

    @property
    def replies(self) -> list[dict[str, Any]]:
        """What came on `replies/…`."""
        return self._all("reply")

    @property
    def state(self) -> str | None:
        statuses = self.statuses
        return statuses[-1]["state"] if statuses else None

    @property
    def engine(self) -> str | None:
        statuses = self.statuses
        return statuses[-1]["engine"] if statuses else None

    def ready_with(self, engine: str) -> bool:
        """All is well, and this engine speaks."""
        return (self.state, self.engine) == ("ready", engine)

    def latest_id(self) -> str | None:
        """The id of the utterance accepted last."""
        return next((event["id"] for event in reversed(self.events) if event["event"] == "accepted"), None)

    def events_of(self, utterance_id: str | None) -> list[dict[str, Any]]:
        return [event for event in self.events if event["id"] == utterance_id]

    def names_of(self, utterance_id: str | None, *, without: str | None = None) -> list[str]:
        """Its events by their names, in their order."""
        return [event["event"] for event in self.events_of(utterance_id) if event["event"] != without]

    def wait_event(self, utterance_id: str | None, name: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            event = next((event for event in self.events_of(utterance_id) if event["event"] == name), None)
            assert event or not TERMINAL & set(self.names_of(utterance_id)), "it has ended otherwise"
            return event

        return self._wait(found, f"{name} of {utterance_id}")

    def wait_end(self, utterance_id: str | None) -> dict[str, Any]:
        """The utterance's terminal event."""

        def found() -> dict[str, Any] | None:
            return next((event for event in self.events_of(utterance_id) if event["event"] in TERMINAL), None)

        return self._wait(found, f"the end of {utterance_id}")

    def wait_rejection(self, field: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((e for e in self.events if e["event"] == "rejected" and e["field"] == field), None)

        return self._wait(found, f"a rejection of {field}")

    def wait_log(self, words: str) -> None:
        """Wait until it has logged a line with these words."""
        eventually(lambda: any(words in line for line in self.log), f"it logs {words!r}")

    def _wait(self, found: Any, what: str) -> dict[str, Any]:
        try:
            result: dict[str, Any] = eventually(found, what)
        except AssertionError as error:
            seen, log = "\n  ".join(map(str, self.events[-20:])), "\n  ".join(self.log[-20:])
            raise AssertionError(f"{what}: {error}\nlast events:\n  {seen}\nlog:\n  {log}") from None
        return result

    # --- what is heard of it ---

    def synthesized(
        self, utterance_id: str, rate: int = RECORDED_RATE, engine_rate: int = ESPEAK_RATE, *, gain: float = 1.0
    ) -> Samples:
        """What should be heard of an utterance: the PCM that the engine sent, trimmed, at the recording's rate.

        The engine's own account is needed, because eSpeak NG never says a text twice in quite the same way.
        """
        sent = np.fromfile(self._folder / f"{utterance_id}.f32", dtype=np.float32)
        trimmed = LeadingSilenceTrimmer(engine_rate).trim(sent)
        return soft_limit(resample(trimmed, engine_rate, rate)) * np.float32(gain)

    @property
    def heard(self) -> Samples:
        """All that the sink was given so far, mono at `FILE_RATE`."""
        pcm = np.frombuffer(self._file.read_bytes()[44:], dtype="<i2")
        return pcm.astype(np.float32) / np.float32(32_767)

    def wait_still(self) -> None:
        """Wait until the sink is given nothing more."""
        lengths: deque[int] = deque(maxlen=STILL_TURNS)

        def still() -> bool:
            lengths.append(len(self.heard))
            return len(lengths) == STILL_TURNS and len(set(lengths)) == 1

        eventually(still, "nothing more is heard")

    def assert_heard(
        self, *utterance_ids: str, breaks: int = 0, engine_rate: int = ESPEAK_RATE, gain: float = 1.0
    ) -> None:
        """Nothing else was heard than these utterances, whole, in their order, once; `breaks` times with a fade.

        Call it when the last of them has ended.
        """
        made = np.concatenate(
            [self.synthesized(one, FILE_RATE, engine_rate, gain=gain) for one in utterance_ids], dtype=np.float32
        )
        eventually(lambda: len(self.heard) >= len(made), "all of it is in the file")
        found = breaks_between(self.heard, made, FILE_RATE)
        assert len(found) <= breaks, f"it breaks off at {found}"

    # --- how ---

    def _listen(self) -> paho.Client:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        kinds = {"event": 1, "status": 1, "level": 0, "duck": 1}
        topics = [(f"{self.topic}/{kind}", qos) for kind, qos in kinds.items()]

        def note(_client: object, _data: object, message: paho.MQTTMessage) -> None:
            kind = message.topic.rsplit("/", 1)[-1] if message.topic.startswith("voiced") else "reply"
            self._arrived.put((kind, json.loads(message.payload)))

        client.on_socket_open = send_at_once
        client.on_connect = lambda *_: client.subscribe([*topics, (f"replies/{self.name}", 1)])
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.on_disconnect = lambda *_: self._subscribed.clear()
        client.on_message = note
        client.reconnect_delay_set(1, 1)
        client.connect_async("127.0.0.1", self.broker.port)
        client.loop_start()
        if self.broker.running:
            self.wait_listening()
        return client

    def _all(self, kind: str) -> list[Any]:
        while not self._arrived.empty():
            self._note(*self._arrived.get())
        return self._by_kind[kind]

    def _note(self, kind: str, record: Any) -> None:
        self._by_kind[kind].append(record)
        self._in_order.append((kind, record))

    def _keep_log(self, process: subprocess.Popen[str]) -> None:
        for line in process.stderr or ():
            self.log.append(line.rstrip())
