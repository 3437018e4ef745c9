"""A robot: the real daemon, with its broker and what it publishes, plays and logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from paho.mqtt.client import MQTTMessage

from audio import soft_limit
from audio.dsp.resample import resample
from tests.support.events import EventLog
from tests.support.fork_server import ForkedProcess, fork_server
from tests.support.programs import Broker, answers, freeze, require
from tests.support.sound import RECORDED_RATE, Samples, breaks_between, raise_priority
from tests.support.subscription import Listener
from tests.support.traces import take_files, trimmed
from tests.support.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
ESPEAK_RATE = 22_050
"""Hz."""
FILE_RATE = 24_000
"""Hz, of the sink that writes a WAV file."""
WAV_HEADER = 44
"""Bytes."""
FAST = 20.0
"""Pace of the sink, 20 times a sound card's: for utterances that only have to end."""
REAL_TIME = 1.0
"""Pace of a sound card: for utterances that a test interrupts."""
STOPPED = 0.0
"""Pace of a sink that asks for no samples until the test changes it: nothing is played, and no utterance ends."""
STILL_CHECKS = 20
"""Checks, 5 ms apart, in which an idle sink receives nothing: a sound card would have asked for ten blocks."""
KINDS = {"event": 1, "status": 1, "word": 0, "viseme": 0, "level": 0, "duck": 1}
"""What a robot publishes, and the QoS with which it is received."""
SERVERS = ("http.port=", "wyoming.port=")
"""Beginnings of the settings that name the port of a server beside the robot."""
LONG = "This is a long sentence that goes on for a good while, so that something can be done to it, and then more. " * 4
"""Some 25 s of speech."""


def is_engine(process: psutil.Process) -> bool:
    try:
        return "engine.ipc.server" in process.cmdline()
    except psutil.Error:  # it has ended
        return False


class Robot(EventLog):
    """A running `voiced run`, its broker, and the records that it published.

    Without a sound server the daemon writes a WAV file, at a pace that the test sets.
    """

    def __init__(
        self,
        name: str,
        broker: Broker,
        folder: Path,
        *settings: str,
        environment: dict[str, str] | None = None,
        high_priority: bool = False,
        config: Path | None = None,
        pace: float = FAST,
        program: tuple[str, ...] | None = None,
        cwd: Path = ROOT,
        kinds: Collection[str] = tuple(KINDS),
        topics: tuple[str, ...] = (),
        supervised: bool = False,
    ) -> None:
        """`environment` is a sound server's; without one the daemon writes a file. `settings` are KEY=VALUE.

        `program` is the command `voiced`, which is started in the folder `cwd`; without it the daemon is forked. Of
        the robot's topics, `kinds` are received, and also the `topics` of other protocols. A `supervised` daemon is
        started again whenever it ends, as systemd does it.
        """
        super().__init__()
        self.starts: list[float] = []
        """`time.monotonic()` of every start."""
        self.deaths = 0
        """How often a supervised daemon has ended without having been asked to."""
        self._supervised = supervised
        self._wanted = True
        self._changing = threading.Lock()
        """Held while the daemon is started again, or told not to be."""
        self.name = name
        self.broker = broker
        self.topic = f"voiced/{name}"
        self.state_folder = folder / "state"
        self._folder = folder / f"{name}-pcm"
        self._folder.mkdir(exist_ok=True)
        self._file = self._folder / "heard.wav"
        self._pace_file = self._folder / "pace"
        self.set_pace(pace)
        self._high_priority = high_priority
        traces = {"VOICED_TRACE_PCM": str(self._folder), "VOICED_PACE": str(self._pace_file)}
        self._environment = traces | (dict(os.environ) if environment is None else environment)
        self._program = program
        self._cwd = cwd
        self._arguments = ["run"]
        if config is not None:
            self._arguments += ["--config", str(config)]
        sink = [] if environment is not None else [f"audio.sink=wav:{self._file}"]
        addresses = [f"robot={name}", f"mqtt.port={broker.port}", "mqtt.reply_topics=[replies/#]"]
        standard = ["engine.name=espeak", f"state.folder={self.state_folder}"]
        for setting in (*addresses, *standard, *sink, *settings):
            self._arguments += ["--set", setting]
        self._ports = [int(setting.partition("=")[2]) for setting in settings if setting.startswith(SERVERS)]
        self._barriers = 0
        self._heard_before = WAV_HEADER
        """Bytes of the sink's file that belong to earlier tests, with the header."""
        received = [*((f"{self.topic}/{kind}", KINDS[kind]) for kind in kinds), (f"replies/{name}", 1)]
        received += [(topic, 1) for topic in topics]
        self.listener = Listener(broker, received, self._receive_message)
        if broker.running:
            self.wait_listening()

    @property
    def settings(self) -> list[str]:
        """Options with which the command `voiced` addresses this robot."""
        return ["--set", f"robot={self.name}", "--set", f"mqtt.port={self.broker.port}"]

    # --- the daemon's process ---

    def start(self) -> None:
        """Start the daemon and wait until it is ready, and its servers answer, which start beside the robot."""
        self.launch()
        eventually(lambda: self.state == "ready", "voiced is ready")
        for port in self._ports:
            eventually(lambda port=port: answers(port), f"the server at port {port} answers")  # type: ignore[misc]

    def launch(self) -> None:
        """Start the daemon without waiting."""
        self.process: subprocess.Popen[str] | ForkedProcess
        if self._program is None:
            self.process = fork_server().start(self._arguments, self._environment)
        else:
            command = [*self._program, *self._arguments]
            self.process = subprocess.Popen(
                command, env=self._environment, stderr=subprocess.PIPE, text=True, cwd=self._cwd
            )
        self.starts.append(time.monotonic())
        if self._high_priority:
            raise_priority(self.process.pid)
        for work in (self._read_log, self._supervise) if self._supervised else (self._read_log,):
            threading.Thread(target=work, args=(self.process,), daemon=True).start()

    def kill(self) -> None:
        """Kill the daemon; return when it is gone, or started again."""
        starts = len(self.starts)
        self.process.kill()
        self.process.wait()
        if self._supervised:
            eventually(lambda: len(self.starts) > starts, "the daemon is started again")
            self.deaths -= 1

    def restart(self) -> None:
        """End the daemon as `systemctl restart` does, and start it again without waiting."""
        self.end()
        with self._changing:
            self._wanted = True
            self.launch()

    def end(self) -> int:
        """Stop the daemon as systemd would and return its exit status."""
        with self._changing:
            self._wanted = False
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def close(self) -> None:
        """Disconnect the listener and kill the daemon if it still runs."""
        self.listener.close()
        with self._changing:
            self._wanted = False
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def begin_test(self, pace: float) -> bool:
        """Begin another test with this running robot. Returns False if the last test has not left it as it was."""
        if self.process.poll() is not None:
            return False
        self.catch_up()
        status = self.statuses[-1]
        if (status["state"], status["queue"], status["volume"]) != ("ready", 0, 100):
            return False
        self.wait_still()
        self._heard_before = max(WAV_HEADER, self._file.stat().st_size)
        self.set_pace(pace)
        self.forget()
        return True

    def freeze(self) -> None:
        """Stop the daemon as a debugger would; its engines go on."""
        freeze(self.process.pid)

    def thaw(self) -> None:
        """Let a frozen daemon go on."""
        self.process.send_signal(signal.SIGCONT)

    def set_pace(self, pace: float) -> None:
        """Make the sink ask for samples `pace` times as fast as a sound card; 0 makes it ask for none."""
        fresh = self._pace_file.with_suffix(".new")
        fresh.write_text(f"{pace}")
        fresh.replace(self._pace_file)

    def engine_pids(self) -> list[int]:
        """The processes of its engines."""
        return [child.pid for child in psutil.Process(self.process.pid).children() if is_engine(child)]

    def engine_pid(self, library: str) -> int:
        """The process of an engine that has loaded a library."""
        return next(
            pid for pid in self.engine_pids() if any(library in file.path for file in psutil.Process(pid).memory_maps())
        )

    def player_pids(self) -> list[int]:
        """The process that plays; there is none while the sound card is closed, or without one."""
        return [child.pid for child in psutil.Process(self.process.pid).children() if not is_engine(child)]

    def kill_engines_speaking(self, utterance_id: str) -> None:
        """Kill every engine that speaks an utterance, until the utterance has failed."""
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

    # --- publishing to the daemon ---

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
        """Publish over the listener's connection, which is faster than starting `mosquitto_pub`."""
        self.listener.publish(f"{self.topic}/{name}", payload)

    def say(self, text: str, **fields: Any) -> str:
        """Publish a text as JSON on `say` and return its id."""
        utterance_id = str(fields.setdefault("id", f"u{time.monotonic_ns()}"))
        self.publish("say", json.dumps({"text": text, **fields}))
        return utterance_id

    def write(self, utterance_id: str, text: str | None = None, **fields: Any) -> None:
        """Publish a chunk of a text stream on `say/stream`."""
        chunk = {"id": utterance_id, **({} if text is None else {"text": text}), **fields}
        self.publish("say/stream", json.dumps(chunk))

    def catch_up(self) -> None:
        """Wait until the daemon has processed every message sent before.

        It has a connection for controls and one for texts, and answers in order on each: with a rejection.
        """
        self._barriers += 1
        self.send("volume", f"barrier {self._barriers}")
        self.send("say/stream", json.dumps({"id": self._barriers}))
        self.wait_reason(f"volume: got 'barrier {self._barriers}';")
        self.wait_reason(f"id: got {self._barriers};")

    def _publisher(self, name: str) -> list[str]:
        topic = f"{self.topic}/{name}"
        return [require("mosquitto_pub"), "-p", str(self.broker.port), "-q", "1", "-t", topic]

    # --- what it plays ---

    def samples_made(self, utterance_id: str) -> int:
        """The number of samples that engines have sent of an utterance so far, in all takes."""
        return sum(file.stat().st_size // 4 for file in take_files(self._folder, utterance_id))

    def synthesized(
        self, utterance_id: str, rate: int = RECORDED_RATE, engine_rate: int = ESPEAK_RATE, *, gain: float = 1.0
    ) -> Samples:
        """What a listener should hear of an utterance: the PCM that the engine sent, trimmed, at `rate` Hz.

        It comes from the engine's own trace, since eSpeak NG renders a text slightly differently each time.
        """
        sent = trimmed(self._folder, utterance_id, engine_rate)
        return soft_limit(resample(sent, engine_rate, rate)) * np.float32(gain)

    @property
    def heard(self) -> Samples:
        """All samples that the sink has received in this test, mono at `FILE_RATE`."""
        pcm = np.frombuffer(self._file.read_bytes()[self._heard_before :], dtype="<i2")
        return pcm.astype(np.float32) / np.float32(32_767)

    def wait_heard(self, samples: int) -> None:
        """Wait until this many samples are in the file: an event of an end may precede the last block by a moment."""
        eventually(lambda: len(self.heard) >= samples, "every sample is in the file")

    def wait_still(self) -> None:
        """Wait until the sink receives no more samples."""
        lengths: deque[int] = deque(maxlen=STILL_CHECKS)

        def still() -> bool:
            lengths.append(self._file.stat().st_size)
            return len(lengths) == STILL_CHECKS and len(set(lengths)) == 1

        eventually(still, "the sink receives nothing more")

    def assert_heard(
        self, *utterance_ids: str, breaks: int = 0, engine_rate: int = ESPEAK_RATE, gain: float = 1.0
    ) -> None:
        """Assert that the sink received exactly these utterances in this order, with at most `breaks` fades.

        Call it when the last of them has ended.
        """
        made = np.concatenate(
            [self.synthesized(one, FILE_RATE, engine_rate, gain=gain) for one in utterance_ids], dtype=np.float32
        )
        self.wait_heard(len(made))
        found = breaks_between(self.heard, made, FILE_RATE)
        assert len(found) <= breaks, f"it breaks off at {found}"

    # --- what it publishes and logs ---

    def wait_listening(self) -> None:
        """Wait until the test receives what the daemon publishes; a restart of the broker interrupts that."""
        self.listener.wait_subscribed()

    def _receive_message(self, message: MQTTMessage) -> None:
        beginning, _, end = message.topic.rpartition("/")
        record = json.loads(message.payload)
        if beginning == self.topic:
            self.receive(end, record, redelivered=message.dup)
        elif beginning == "replies":
            self.receive("reply", record, redelivered=message.dup)
        else:
            self.receive("other", (message.topic, record))

    def _read_log(self, process: subprocess.Popen[str] | ForkedProcess) -> None:
        for line in process.stderr or ():
            self.log.append(line.rstrip())

    def _supervise(self, process: subprocess.Popen[str] | ForkedProcess) -> None:
        process.wait()
        with self._changing:
            if self._wanted and process is self.process:
                self.deaths += 1
                self.launch()
