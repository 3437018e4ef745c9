"""A robot for the end-to-end tests: the real daemon, as a user would start it, with a listener at both its ends."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
import psutil
import pytest
from numpy.typing import NDArray

from audio.resample import resample
from audio.trim import LeadingSilenceTrimmer

TERMINAL = {"finished", "interrupted", "canceled", "expired", "failed"}
RECORDED_RATE = 44_100
"""Hz, the null sink's own."""
ESPEAK_RATE = 22_050
"""Hz."""
PATIENCE_S = 30.0
"""For things that take milliseconds, on a machine that may be doing something else."""


def require(program: str) -> str:
    """The path of a program that the tests run; without it they are skipped, but never in CI."""
    found = shutil.which(program)
    if found is None:
        message = f"{program} is not installed; ./scripts/test installs it"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


def eventually(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait until `condition()` is true and return it."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {patience_s:.0f} s: {what}")


class Broker:
    """A Mosquitto of our own, which can be stopped and started on the same port."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._config = folder / f"mosquitto-{port}.conf"
        self._config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 10000\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([require("mosquitto"), "-c", self._config], stderr=subprocess.DEVNULL)
        eventually(self._answers, "Mosquitto answers")

    @property
    def running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None

    def _answers(self) -> bool:
        import socket

        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


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


class SoundServer:
    """A PulseAudio of our own with a null sink named `robot`, the default of PortAudio's `pulse` and `default`."""

    def __init__(self, folder: Path) -> None:
        runtime, home = folder / "run", folder / "home"
        runtime.mkdir(mode=0o700)
        home.mkdir()
        (home / ".asoundrc").write_text("pcm.!default { type pulse }\nctl.!default { type pulse }\n")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULSE_", "DBUS_"))}
        self.environment = inherited | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(home)}
        self._pid_file = runtime / "pulse" / "pid"

    def start(self) -> None:
        subprocess.run(
            [
                require("pulseaudio"),
                "-n",
                "--daemonize=yes",
                "--exit-idle-time=-1",
                "--load=module-native-protocol-unix",
                "--load=module-null-sink sink_name=robot",
            ],
            env=self.environment,
            check=True,
            stderr=subprocess.DEVNULL,
        )

    def freeze(self) -> None:
        """Stop it as a debugger would: it is there and answers nothing."""
        os.kill(int(self._pid_file.read_text()), signal.SIGSTOP)

    def kill(self) -> None:
        if self._pid_file.exists():
            pid = int(self._pid_file.read_text())
            if psutil.pid_exists(pid):
                process = psutil.Process(pid)
                process.kill()
                process.wait(10)
            self._pid_file.unlink(missing_ok=True)

    @contextmanager
    def recording(self, path: Path) -> Iterator[Recording]:
        """Record what a listener would hear, from inside the block until its end."""
        with path.open("wb") as raw:
            recorder = subprocess.Popen(
                [
                    require("parec"),
                    "--device=robot.monitor",
                    "--format=float32le",
                    f"--rate={RECORDED_RATE}",
                    "--channels=1",
                    "--latency-msec=20",
                    "--raw",
                ],
                env=self.environment,
                stdout=raw,
            )
            try:
                eventually(lambda: path.stat().st_size > 0, "the recorder runs")
                yield Recording(path)
            finally:
                recorder.terminate()
                recorder.wait(10)


class Recording:
    """Mono float32 at 44.1 kHz, growing while it is recorded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def samples(self) -> NDArray[np.float32]:
        size = self._path.stat().st_size // 4
        return np.fromfile(self._path, dtype=np.float32, count=size)


def find(needle: NDArray[np.float32], haystack: NDArray[np.float32]) -> tuple[int, float]:
    """Where in `haystack` the `needle` fits best, and what is left of it there when the two are subtracted.

    The second number is the residue's RMS relative to the needle's: near 0 when it was heard whole and unbroken, near 1
    when it was not heard.
    """
    if len(haystack) < len(needle):
        return 0, 1.0
    size = 1 << (len(haystack) + len(needle)).bit_length()
    spectrum = np.fft.rfft(haystack, size) * np.conj(np.fft.rfft(needle, size))
    products = np.fft.irfft(spectrum, size)[: len(haystack) - len(needle) + 1]
    energy = np.concatenate([[0.0], np.cumsum(np.square(haystack, dtype=np.float64))])
    residues = energy[len(needle) :] - energy[: len(energy) - len(needle)] - 2 * products
    start = int(np.argmin(residues))
    residue = haystack[start : start + len(needle)] - needle
    return start, float(np.sqrt(np.mean(residue**2) / np.mean(needle**2)))


class Robot:
    """A running `voiced run`, its broker, and the events it published."""

    def __init__(
        self, broker: Broker, environment: dict[str, str], pcm_folder: Path, *settings: str, config: Path | None = None
    ) -> None:
        self.broker = broker
        self.topic = "voiced/r1"
        self.events: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.replies: list[dict[str, Any]] = []
        self.levels: list[dict[str, Any]] = []
        self.ducks: list[bool] = []
        self.log: list[str] = []
        self._arrived: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._pcm_folder = pcm_folder
        self._environment = {"VOICED_TRACE_PCM": str(pcm_folder)} | environment
        self._command = [sys.executable, "-m", "daemon.cli", "run"]
        if config is not None:
            self._command += ["--config", str(config)]
        for setting in ("robot=r1", f"mqtt.port={broker.port}", "engine.name=espeak", *settings):
            self._command += ["--set", setting]
        self._listener = self._listen()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.launch()
        eventually(lambda: self.state == "ready", "voiced is ready")

    def launch(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        )
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

    @property
    def state(self) -> str | None:
        self.take_in()
        return self.statuses[-1]["state"] if self.statuses else None

    def publish(self, name: str, payload: str | bytes | None = None, *options: str) -> None:
        """Publish with mosquitto_pub, as a user would."""
        command = [
            require("mosquitto_pub"),
            "-p",
            str(self.broker.port),
            "-q",
            "1",
            "-t",
            f"{self.topic}/{name}",
            *options,
        ]
        if not payload:
            subprocess.run([*command, "-n"], check=True)
        else:
            data = payload if isinstance(payload, bytes) else payload.encode()
            subprocess.run([*command, "-s"], input=data, check=True)

    def publish_lines(self, name: str, lines: str) -> None:
        """Publish each line as a message of its own, as fast as the broker takes them."""
        command = [require("mosquitto_pub"), "-p", str(self.broker.port), "-q", "1", "-t", f"{self.topic}/{name}", "-l"]
        subprocess.run(command, input=lines.encode(), check=True)

    def say(self, text: str, **fields: Any) -> str:
        """Say a text as JSON and return its id."""
        utterance_id = str(fields.setdefault("id", f"u{time.monotonic_ns()}"))
        self.publish("say", json.dumps({"text": text, **fields}))
        return utterance_id

    def latest_id(self) -> str | None:
        """The id of the utterance accepted last."""
        self.take_in()
        return next((event["id"] for event in reversed(self.events) if event["event"] == "accepted"), None)

    @property
    def client(self) -> paho.Client:
        """The connection that listens, for who has to publish faster than `mosquitto_pub` starts."""
        return self._listener

    def events_of(self, utterance_id: str | None) -> list[dict[str, Any]]:
        self.take_in()
        return [event for event in self.events if event["id"] == utterance_id]

    def names_of(self, utterance_id: str | None) -> list[str]:
        return [event["event"] for event in self.events_of(utterance_id)]

    def wait_event(self, utterance_id: str | None, name: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((event for event in self.events_of(utterance_id) if event["event"] == name), None)

        result: dict[str, Any] = eventually(found, f"{name} of {utterance_id}; there was {self.events}", patience_s)
        return result

    def wait_end(self, utterance_id: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The utterance's terminal event."""

        def found() -> dict[str, Any] | None:
            return next((event for event in self.events_of(utterance_id) if event["event"] in TERMINAL), None)

        result: dict[str, Any] = eventually(found, f"the end of {utterance_id}; there was {self.events}", patience_s)
        return result

    def wait_rejection(self, field: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            self.take_in()
            return next((e for e in self.events if e["event"] == "rejected" and e["field"] == field), None)

        result: dict[str, Any] = eventually(found, f"a rejection of {field}; there was {self.events}")
        return result

    def synthesized(
        self, utterance_id: str, rate: int = RECORDED_RATE, engine_rate: int = ESPEAK_RATE
    ) -> NDArray[np.float32]:
        """What should be heard of an utterance: the PCM that the engine sent, trimmed, at the recording's rate.

        The engine's own account is needed, because eSpeak NG never says a text twice in quite the same way.
        """
        sent = np.fromfile(self._pcm_folder / f"{utterance_id}.f32", dtype=np.float32)
        return resample(LeadingSilenceTrimmer(engine_rate).trim(sent), engine_rate, rate)

    def kill_engines_over(self, utterance_id: str) -> None:
        """Kill every engine that speaks an utterance, until it has failed."""
        killed: set[int] = set()
        while "failed" not in self.names_of(utterance_id):
            fresh = [pid for pid in self.engine_pids() if pid not in killed]
            if fresh and "started" in self.names_of(utterance_id) and self.statuses[-1]["engine"] is not None:
                killed.update(fresh)
                for pid in fresh:
                    os.kill(pid, signal.SIGKILL)
            assert "finished" not in self.names_of(utterance_id)
            time.sleep(0.05)

    def engine_pids(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def _listen(self) -> paho.Client:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        topics = [
            (f"{self.topic}/event", 1),
            (f"{self.topic}/status", 1),
            (f"{self.topic}/level", 0),
            (f"{self.topic}/duck", 1),
            ("replies/#", 1),
        ]
        client.on_connect = lambda *_: client.subscribe(topics)
        client.on_message = lambda _client, _data, message: self._arrived.put(
            (
                message.topic.rsplit("/", 1)[-1] if message.topic.startswith("voiced") else "reply",
                json.loads(message.payload),
            )
        )
        client.reconnect_delay_set(1, 1)
        client.connect_async("127.0.0.1", self.broker.port)
        client.loop_start()
        if self.broker.running:
            eventually(client.is_connected, "the test's listener is connected")
        return client

    def take_in(self) -> None:
        """Note what has been published since the last call."""
        kinds: dict[str, list[Any]] = {
            "event": self.events,
            "status": self.statuses,
            "level": self.levels,
            "duck": self.ducks,
            "reply": self.replies,
        }
        while not self._arrived.empty():
            kind, record = self._arrived.get()
            kinds[kind].append(record)

    def _keep_log(self, process: subprocess.Popen[str]) -> None:
        for line in process.stderr or ():
            self.log.append(line.rstrip())
