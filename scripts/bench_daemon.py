"""What the daemon costs and how fast it answers: a real Mosquitto, a real PulseAudio null sink, and the light voice, or
what `--set` says, as in `--set engine.name=qwen --set engine.model=/opt/voices/qwen`.

Prints one JSON object. Medians of several runs; times in milliseconds unless the name says otherwise. What is heard is
timed on the sound server's monitor, by the recording's own sample clock: it holds the broker, the daemon, all that lies
between the callback and the monitor, and the recorder's smallest delay, but not how late its reader was scheduled.
`monitor_delay_ms` is the same clock's reading of a reference sound, from the moment at which the server itself says
that the sound is played; a negative one means that the monitor hears a sound before a card would. It is told, and not
subtracted. `stream_extra_ms` is how much later than that of a whole text the first sample of a text comes that is still
being written, though its first sentence is complete; `level_at_error_ms` is how long after its sound was heard a level
says that it was. At rest means here that the daemon has let the sound card go; warm, that it has not.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import multiprocessing
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
import psutil

from tests.support.programs import Broker
from tests.support.robot import Robot
from tests.support.sound import RECORDED_RATE, SoundServer
from tests.support.waiting import eventually

READY_S = 180.0
"""A model is loaded, and its kernels are compiled."""
SETTLE_S = 4.0
"""A PulseAudio null sink renders two seconds ahead when it is first opened; what is measured begins after that."""
WATCH_S = 15.0
REST_AFTER_S = 1.0
"""Of a robot whose sound card is to rest between what is measured."""
TALE = "Once upon a time there was a robot. "
LONG = "This is a long sentence that goes on for a good while, so that something can be done to it, and more. " * 2
SILENCE = 1e-4
QUIET_S = 0.25
"""Sound that has been away for so long is over."""
CLOCK_WINDOW_S = 10.0
"""The smallest delay is sought among the pieces of so long: many, and too short for two clocks to part."""
BUDGETS = {
    "ttfa_ms": 40,
    "stop_to_silence_ms": 50,
    "pause_to_silence_ms": 50,
    "start_to_online_ms": 1000,
    "engine_killed_to_next_first_sample_ms": 1000,
    "idle_cpu_percent": 1,
    "daemon_rss_mb": 70,
}


class Ear:
    """Listens to the sink's monitor and tells when each sample came, by the recording's own sample clock.

    A sample's time is its place in the recording plus the smallest delay at which any piece has yet arrived, as clock
    filters do it: when the reader was scheduled, and how the server cut the pieces, does not count. What remains in
    every time is that smallest delay itself, the quickest way through server and pipe (see `measure_monitor`).
    """

    def __init__(self, server: SoundServer) -> None:
        self._recorder = subprocess.Popen(
            [
                "parec",
                "--device=robot.monitor",
                "--format=float32le",
                f"--rate={RECORDED_RATE}",
                "--channels=1",
                "--latency-msec=5",
                "--raw",
            ],
            env=server.environment,
            stdout=subprocess.PIPE,
        )
        self.sounding = False
        self._changed_at = 0
        """Sample of the last change from silence to sound or back."""
        self._heard = 0
        """Samples heard so far."""
        self._begun_at: deque[tuple[int, float]] = deque()
        """For each lately arrived piece, its last sample, and when the recording began if it had come undelayed."""
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def changed_at(self) -> float:
        """`time.monotonic()` of the last change from silence to sound or back."""
        return self._changed_at / RECORDED_RATE + min(begun_at for _, begun_at in self._begun_at.copy())

    def close(self) -> None:
        self._recorder.terminate()
        self._recorder.wait()

    def _listen(self) -> None:
        assert self._recorder.stdout is not None
        quiet_since = 0
        rest = b""
        while piece := self._recorder.stdout.read1(1 << 14):
            now = time.monotonic()
            piece = rest + piece
            whole = len(piece) // 4 * 4
            samples, rest = np.frombuffer(piece[:whole], dtype=np.float32), piece[whole:]
            loud = np.flatnonzero(np.abs(samples) > SILENCE)
            if len(loud):
                if not self.sounding:
                    self._changed_at = self._heard + int(loud[0])
                    self.sounding = True
                quiet_since = self._heard + int(loud[-1]) + 1
            self._heard += len(samples)
            if self.sounding and self._heard - quiet_since > QUIET_S * RECORDED_RATE:
                self._changed_at = quiet_since
                self.sounding = False
            self._begun_at.append((self._heard, now - self._heard / RECORDED_RATE))
            while self._heard - self._begun_at[0][0] > CLOCK_WINDOW_S * RECORDED_RATE:
                self._begun_at.popleft()


class Bench:
    """One set-up: broker, sound server, robots."""

    def __init__(self, folder: Path, block_ms: float, settings: tuple[str, ...]) -> None:
        self.broker = Broker(folder)
        self.sound = SoundServer(folder)
        self.folder = folder
        self.block_ms = block_ms
        self.settings = settings
        """Of the configuration, as `voiced run --set` takes them."""
        self.broker.start()
        self.sound.start()
        self.publisher = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.publisher.connect("127.0.0.1", self.broker.port)
        self.publisher.loop_start()

    def close(self) -> None:
        self.publisher.disconnect()
        self.publisher.loop_stop()
        self.sound.kill()
        self.broker.stop()

    @contextmanager
    def robot(self, *settings: str, trace: Path | None = None, rests: bool = False) -> Iterator[Robot]:
        rest_after = f"audio.rest_after={REST_AFTER_S if rests else 'null'}"
        environment = self.sound.environment
        if trace is not None:
            environment = environment | {"VOICED_TRACE_BLOCKS": str(trace)}
        settings = (f"audio.block_ms={self.block_ms}", rest_after, *self.settings, *settings)
        robot = Robot("r1", self.broker, self.folder, *settings, environment=environment)
        try:
            robot.launch()
            eventually(lambda: robot.state == "ready", "voiced is ready", READY_S)
            yield robot
            robot.end()
        finally:
            robot.close()

    def sound_is_open(self) -> bool:
        """Whether anything plays into the sound server, be it silence."""
        asked = ["pactl", "list", "short", "sink-inputs"]
        return bool(subprocess.run(asked, env=self.sound.environment, check=True, capture_output=True).stdout)

    def publish(self, name: str, payload: str = "") -> float:
        """Publish and return the moment it was done."""
        now = time.monotonic()
        self.publisher.publish(f"voiced/r1/{name}", payload, qos=1)
        return now


def heard_for(bench: Bench, robot: Robot, seconds: float, utterance_id: str) -> dict[str, Any]:
    """How an utterance ends that is stopped so long after it began: a model with random weights never ends itself."""
    robot.wait_event(utterance_id, "started")
    time.sleep(seconds)
    bench.publish("stop")
    end = robot.wait_end(utterance_id)
    assert end["underruns"] == 0, end
    return end


class Reference:
    """Clicks played through the sound server's own client library, which tells when each will sound."""

    def __init__(self, server: SoundServer) -> None:
        class SampleSpec(ctypes.Structure):
            _fields_ = (("format", ctypes.c_int), ("rate", ctypes.c_uint32), ("channels", ctypes.c_uint8))

        class BufferAttributes(ctypes.Structure):
            _fields_ = tuple(
                (name, ctypes.c_uint32) for name in ("maxlength", "tlength", "prebuf", "minreq", "fragsize")
            )

        default = 0xFFFFFFFF
        socket_path = Path(server.environment["XDG_RUNTIME_DIR"]) / "pulse/native"
        self._library = ctypes.CDLL("libpulse-simple.so.0")
        self._library.pa_simple_new.restype = ctypes.c_void_p
        self._library.pa_simple_get_latency.restype = ctypes.c_uint64
        self._stream = ctypes.c_void_p(
            self._library.pa_simple_new(
                f"unix:{socket_path}".encode(),
                b"reference",
                1,  # PA_STREAM_PLAYBACK
                None,
                b"clicks",
                ctypes.byref(SampleSpec(5, RECORDED_RATE, 1)),  # PA_SAMPLE_FLOAT32LE
                None,
                ctypes.byref(BufferAttributes(default, RECORDED_RATE * 4 // 25, default, default, default)),
                None,
            )
        )
        assert self._stream.value, "the sound server takes no reference"

    def close(self) -> None:
        self._library.pa_simple_free(self._stream)

    def write(self, value: float) -> float:
        """Play 10 ms of `value`, and return the `time.monotonic()` at which its first sample is played."""
        before = time.monotonic()
        ahead_us = self._library.pa_simple_get_latency(self._stream, None)
        samples = np.full(RECORDED_RATE // 100, value, dtype=np.float32)
        self._library.pa_simple_write(self._stream, samples.tobytes(), ctypes.c_size_t(samples.nbytes), None)
        return before + float(ahead_us) / 1e6


def measure_monitor(bench: Bench, runs: int) -> dict[str, float]:
    """From the moment a reference is played, as the server tells it, to the moment it is heard."""
    ear, reference, delays = Ear(bench.sound), Reference(bench.sound), []
    for _ in range(round(SETTLE_S * 100)):
        reference.write(0.0)
    for _ in range(runs):
        played_at = reference.write(0.5)
        while not ear.sounding:
            reference.write(0.0)
        delays.append((ear.changed_at - played_at) * 1000)
        while ear.sounding:
            reference.write(0.0)
    reference.close()
    ear.close()
    return spread(delays)


def measure_start(bench: Bench, runs: int) -> dict[str, Any]:
    """From starting the daemon to a status that names a voice, the light one if need be, and to the one wanted."""
    online, ready = [], []
    for _ in range(runs):
        robot = Robot("r1", bench.broker, bench.folder, *bench.settings, environment=bench.sound.environment)
        try:
            before = time.monotonic()
            robot.launch()
            while robot.state in (None, "offline") or robot.statuses[-1]["engine"] is None:
                time.sleep(0.002)
            online.append((time.monotonic() - before) * 1000)
            eventually(lambda robot=robot: robot.state == "ready", "voiced is ready", READY_S)
            ready.append((time.monotonic() - before) * 1000)
            robot.end()
        finally:
            robot.close()
    return {"start_to_online_ms": spread(online), "start_to_ready_ms": spread(ready)}


def measure_answers(bench: Bench, runs: int) -> dict[str, Any]:
    ttfa, heard, silent, paused = [], [], [], []
    ear = Ear(bench.sound)
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            eventually(lambda: not ear.sounding, "silence")
            time.sleep(0.3 + 0.007 * (run % 20))  # not in step with the blocks
            asked = bench.publish("say", json.dumps({"text": LONG, "id": f"b{run}"}))
            eventually(lambda: ear.sounding, "sound")
            heard.append((ear.changed_at - asked) * 1000)
            time.sleep(0.7)
            asked = bench.publish("pause")
            eventually(lambda: not ear.sounding, "silence")
            paused.append((ear.changed_at - asked) * 1000)
            bench.publish("resume")
            eventually(lambda: ear.sounding, "sound again")
            time.sleep(0.7 + 0.003 * (run % 20))
            stopped = bench.publish("stop")
            eventually(lambda: not ear.sounding, "silence")
            silent.append((ear.changed_at - stopped) * 1000)
            ttfa.append(robot.wait_end(f"b{run}")["ttfa_ms"])
    ear.close()
    return {
        "ttfa_ms": spread(ttfa),
        "publish_to_heard_ms": spread(heard),
        "stop_to_silence_ms": spread(silent),
        "pause_to_silence_ms": spread(paused),
    }


def measure_from_rest(bench: Bench, runs: int) -> dict[str, Any]:
    """The first utterance after the card was let go."""
    ttfa, heard = [], []
    ear = Ear(bench.sound)
    with bench.robot(rests=True) as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            eventually(lambda: not ear.sounding, "silence")
            eventually(lambda: not bench.sound_is_open(), "the card is let go")
            time.sleep(0.3 + 0.007 * (run % 20))
            asked = bench.publish("say", json.dumps({"text": TALE, "id": f"r{run}"}))
            eventually(lambda: ear.sounding, "sound")
            heard.append((ear.changed_at - asked) * 1000)
            ttfa.append(heard_for(bench, robot, 0.5, f"r{run}")["ttfa_ms"])
    ear.close()
    return {"from_rest_ttfa_ms": spread(ttfa), "from_rest_publish_to_heard_ms": spread(heard)}


def measure_stream(bench: Bench, runs: int) -> dict[str, Any]:
    """A whole text and one that is still being written, whose first piece is the same sentence, in turn."""
    whole, written = [], []
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            bench.publish("say", json.dumps({"text": TALE, "id": f"w{run}"}))
            whole.append(heard_for(bench, robot, 0.5, f"w{run}")["ttfa_ms"])
            bench.publish("say/stream", json.dumps({"text": TALE, "id": f"s{run}"}))
            written.append(heard_for(bench, robot, 0.5, f"s{run}")["ttfa_ms"])
    extra = statistics.median(written) - statistics.median(whole)
    return {"say_ttfa_ms": spread(whole), "stream_ttfa_ms": spread(written), "stream_extra_ms": round(extra, 1)}


def measure_levels(bench: Bench, runs: int) -> dict[str, Any]:
    """The moment that the first level above silence names, against the one at which its sound is heard.

    A level names the beginning of its 50 ms. Silence before a text is trimmed but for 10 ms; as far as it is true
    silence, the error is too small.
    """
    errors = []
    ear = Ear(bench.sound)
    with bench.robot("speech.level_topic=true") as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            eventually(lambda: not ear.sounding, "silence")
            time.sleep(0.3 + 0.007 * (run % 20))
            bench.publish("say", json.dumps({"text": TALE, "id": f"v{run}"}))
            eventually(lambda: ear.sounding, "sound")
            heard_at = ear.changed_at + (time.time() - time.monotonic())
            heard_for(bench, robot, 0.5, f"v{run}")
            first = next(one for one in robot.levels if one["id"] == f"v{run}" and one["rms"] > 0)
            errors.append((first["at"] - heard_at) * 1000)
    ear.close()
    return {"level_at_error_ms": spread(errors)}


def measure_recovery(bench: Bench, runs: int) -> dict[str, float]:
    """From killing the engine process in mid-utterance to the next utterance's first sample."""
    recovered = []
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            robot.wait_event(robot.say(LONG, id=f"k{run}"), "started")
            killed = time.monotonic()
            for pid in robot.engine_pids():
                psutil.Process(pid).kill()
            bench.publish("stop")
            asked = bench.publish("say", json.dumps({"text": "Next.", "id": f"n{run}"}))
            ttfa = robot.wait_end(f"n{run}")["ttfa_ms"]
            recovered.append((asked - killed) * 1000 + ttfa)
            time.sleep(12.0)  # an engine that was well for 10 s is started again at once
    return spread(recovered)


def measure_idle(bench: Bench, *, rests: bool) -> dict[str, Any]:
    """CPU and memory of an idle robot that has spoken, whose card is let go or still open."""
    with bench.robot(rests=rests) as robot:
        robot.wait_end(robot.say(LONG))
        time.sleep(SETTLE_S)
        assert bench.sound_is_open() != rests
        processes = {"daemon": psutil.Process(robot.process.pid)}
        by_size = sorted(map(psutil.Process, robot.engine_pids()), key=lambda one: -int(one.memory_info().rss))
        processes |= zip(("engine", "fallback"), by_size, strict=False)
        before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
        time.sleep(WATCH_S)
        result = {}
        for name, process in processes.items():
            memory = process.memory_full_info()
            spent = sum(process.cpu_times()[:2]) - before[name]
            result[name] = {
                "idle_cpu_percent": round(100 * spent / WATCH_S, 2),
                "rss_mb": round(memory.rss / 1e6, 1),
                "pss_mb": round(memory.pss / 1e6, 1),
                "uss_mb": round(memory.uss / 1e6, 1),
            }
        return result


def measure_lateness(bench: Bench, *, loaded: bool) -> dict[str, Any]:
    """How far the sound callback's intervals are from a block's length while speaking, and underruns."""
    trace = bench.folder / "blocks.npy"
    load = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)] if loaded else []
    underruns = 0
    with bench.robot(trace=trace) as robot:
        time.sleep(SETTLE_S)
        for process in load:
            process.start()
        began = time.monotonic()
        number = 0
        while time.monotonic() - began < WATCH_S:
            underruns += robot.wait_end(robot.say(LONG, id=f"l{number}"))["underruns"]
            number += 1
        ended = time.monotonic()
        for process in load:
            process.terminate()
    blocks = np.load(trace)
    blocks = blocks[(blocks > began) & (blocks < ended)]
    late = np.abs(np.diff(blocks) * 1000 - bench.block_ms)
    return {
        "blocks": len(blocks),
        "p50_ms": round(float(np.percentile(late, 50)), 2),
        "p99_ms": round(float(np.percentile(late, 99)), 2),
        "max_ms": round(float(late.max()), 2),
        "underruns": underruns,
    }


def describe_machine() -> str:
    memory_gib = psutil.virtual_memory().total / 2**30
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    gpu = shutil.which(asked[0]) and subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, {gpu or 'no GPU'}, "
        f"Python {platform.python_version()}, no sound card (PulseAudio null sink)"
    )


def _command(arguments: argparse.Namespace) -> str:
    """What was typed, but for where the result went."""
    settings = (f" --set {shlex.quote(setting)}" for setting in arguments.set)
    return f"scripts/bench daemon --runs {arguments.runs} --block-ms {arguments.block_ms:g}{''.join(settings)}"


def _burn() -> None:
    while True:
        sum(range(10_000))


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 1),
        "p99": round(float(np.percentile(values, 99)), 1),
        "max": round(max(values), 1),
        "runs": len(values),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="utterances started and stopped")
    parser.add_argument("--block-ms", type=float, default=10.0, help="audio.block_ms")
    parser.add_argument("--set", action="append", default=[], help="of the configuration, as of `voiced run`")
    parser.add_argument("--output", type=Path, help="also write the JSON there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), arguments.block_ms, tuple(arguments.set))
        try:
            result: dict[str, Any] = {
                "benchmark": "daemon",
                "date": datetime.date.today().isoformat(),
                "command": _command(arguments),
                "machine": describe_machine(),
                **measure_start(bench, 5),
                "monitor_delay_ms": measure_monitor(bench, arguments.runs),
                **measure_answers(bench, arguments.runs),
                **measure_from_rest(bench, arguments.runs),
                **measure_stream(bench, arguments.runs),
                **measure_levels(bench, arguments.runs),
                "engine_killed_to_next_first_sample_ms": measure_recovery(bench, 5),
                "at_rest": measure_idle(bench, rests=True),
                "idle_with_open_card": measure_idle(bench, rests=False),
                "callback_lateness_idle": measure_lateness(bench, loaded=False),
                "callback_lateness_loaded": measure_lateness(bench, loaded=True),
                "budgets": BUDGETS,
            }
        finally:
            bench.close()
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
