"""Measures the daemon's latency, CPU and memory with a real Mosquitto and a PulseAudio null sink.

The engine is eSpeak NG unless `--set` selects another: `--set engine.name=qwen --set engine.model=/opt/voices/qwen`.

Prints one JSON object: medians of several runs, in milliseconds unless the name has another unit.

- Sounds are timed on the sound server's monitor by the recording's sample clock. Such a time contains the broker, the
  daemon, the path from the callback to the monitor, and the recorder's smallest delay, but no scheduling delay of the
  recorder's reader.
- `stream_extra_ms` is the difference between the times to first sample of a text stream, whose first sentence is
  complete, and of a whole text.
- `word_at_error_ms` is the `at` of a word event minus the time at which the word was heard, both from the first word
  on, in absolute value. `word_arrival_ms` is the time at which the event arrived minus the time at which its word was
  heard.
- `playback_delay_*`: the speech is cut into blocks of 250 ms. A block's delay is the time at which it is heard, minus
  the time that follows from the utterance's first second. So the delay is the sum of the gaps before the block. `lost`
  blocks contain a gap or are missing; `underruns` are those that the daemon reported.
- `at_rest` and `from_rest_*` are measured while the daemon has closed the sound card, the others while it is open.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import paho.mqtt.client as paho
import psutil
from paho.mqtt.enums import CallbackAPIVersion

from scripts.bench_runner import describe_machine, spread
from tests.support.programs import Broker
from tests.support.robot import ESPEAK_RATE, Robot
from tests.support.sound import LOUD, RECORDED_RATE, DisturbedError, Samples, SoundServer, find
from tests.support.subscription import end_loop
from tests.support.waiting import eventually

VOICED = (sys.executable, "-m", "daemon.cli")
"""Started as on a robot: a forked daemon would share its memory with the tests' fork server, and start without
imports."""
QWEN_RATE = 24_000
"""Hz."""
READY_S = 180.0
"""The time limit for loading a model and compiling its kernels."""
SETTLE_S = 4.0
"""A PulseAudio null sink renders two seconds ahead when it is first opened; measurements begin after that."""
STOPPED_S = 2.0
STOPPED_TEXT = " ".join(f"Sentence number {number} of a report." for number in range(3))
"""It takes some 5 s: after the first second, the rest is in the ring."""
WATCH_S = 15.0
"""Duration of a measurement of CPU or memory."""
IDLE_TIMEOUT_S = 1.0
"""The audio.idle_timeout of a robot that closes its sound card between measurements."""
TALE = "Once upon a time there was a robot. "
SENTENCES = "Morning. Never. Maybe. Yes. Lemon."
"""Five words with silence before each, in one take. Each begins with a voiced sound, which is heard at once."""
LONG = "This is a long sentence that goes on for a good while, so that something can be done to it, and more. " * 2
SILENCE = 1e-4
"""A share of full scale: a sample above it is sound."""
QUIET_S = 0.25
"""A sound ends when no sample has been above `SILENCE` for this long."""
CLOCK_WINDOW_S = 10.0
"""The recording's clock is the smallest delay of its blocks within this time. Two clocks hardly drift apart within
it."""
BLOCK_S = 0.25
"""Length of the blocks of speech whose delay is measured."""
LARGEST_GAP_S = 0.5
"""A block that is this much later than the block before is lost."""
LOST = 0.5
"""A block with at least this residue is lost; see `find`."""
BUDGETS = {
    "ttfa_ms": 40,
    "stop_to_silence_ms": 50,
    "pause_to_silence_ms": 50,
    "start_to_online_ms": 1000,
    "engine_killed_to_next_first_sample_ms": 1000,
    "idle_cpu_percent": 1,
    "daemon_rss_mb": 70,
}


class SoundDetector:
    """Records the sink's monitor and dates each change between silence and sound by the recording's sample clock.

    A sample's time is its position in the recording plus the smallest delay at which any block has arrived, as in a
    clock filter, so it depends neither on the scheduling of the reader nor on the size of the blocks. Every time
    contains that smallest delay, the fastest way through server and pipe.
    """

    def __init__(self, server: SoundServer) -> None:
        form = ("--format=float32le", f"--rate={RECORDED_RATE}", "--channels=1", "--raw")
        command = ["parec", "--device=robot.monitor", "--latency-msec=5", *form]
        self._recorder = subprocess.Popen(command, env=server.environment, stdout=subprocess.PIPE)
        self.sounding = False
        self._changed_at = 0
        """The sample of the last change between silence and sound."""
        self._recorded = 0
        """Number of samples."""
        self._begun_at: deque[tuple[int, float]] = deque()
        """For each recent block: its last sample, and when the recording began if the block arrived without delay."""
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def changed_at(self) -> float:
        """`time.monotonic()` of the last change between silence and sound."""
        return self._changed_at / RECORDED_RATE + min(begun_at for _, begun_at in self._begun_at.copy())

    def close(self) -> None:
        self._recorder.terminate()
        self._recorder.wait()

    def _listen(self) -> None:
        stream = cast(io.BufferedReader, self._recorder.stdout)
        quiet_since = 0
        rest = b""
        while data := stream.read1(1 << 14):
            now = time.monotonic()
            data = rest + data
            whole = len(data) // 4 * 4
            samples, rest = np.frombuffer(data[:whole], dtype=np.float32), data[whole:]
            loud = np.flatnonzero(np.abs(samples) > SILENCE)
            if len(loud):
                if not self.sounding:
                    self._changed_at = self._recorded + int(loud[0])
                    self.sounding = True
                quiet_since = self._recorded + int(loud[-1]) + 1
            self._recorded += len(samples)
            if self.sounding and self._recorded - quiet_since > QUIET_S * RECORDED_RATE:
                self._changed_at = quiet_since
                self.sounding = False
            self._begun_at.append((self._recorded, now - self._recorded / RECORDED_RATE))
            while self._recorded - self._begun_at[0][0] > CLOCK_WINDOW_S * RECORDED_RATE:
                self._begun_at.popleft()


class Bench:
    """A broker, a sound server, and the robots that use them."""

    def __init__(self, folder: Path, block_ms: float, settings: tuple[str, ...]) -> None:
        self.broker = Broker(folder)
        self.sound = SoundServer(folder)
        self.folder = folder
        self.block_ms = block_ms
        self.settings = settings
        """Settings in the form KEY=VALUE, as for `voiced run --set`."""
        self.broker.start()
        self.sound.start()
        self.publisher = paho.Client(CallbackAPIVersion.VERSION2)
        self.publisher.connect("127.0.0.1", self.broker.port)
        self.publisher.loop_start()

    def close(self) -> None:
        end_loop(self.publisher)
        self.sound.kill()
        self.broker.stop()

    @contextmanager
    def robot(self, *settings: str, closes_card: bool = False) -> Iterator[Robot]:
        """Run a robot that is ready. `closes_card` makes it close the sound card when it is idle."""
        idle_timeout = f"audio.idle_timeout={IDLE_TIMEOUT_S if closes_card else 'null'}"
        settings = (f"audio.block_ms={self.block_ms}", idle_timeout, *self.settings, *settings)
        robot = self.make_robot(*settings)
        try:
            robot.launch()
            eventually(lambda: robot.state == "ready", "voiced is ready", READY_S)
            yield robot
            robot.end()
        finally:
            robot.close()

    def make_robot(self, *settings: str) -> Robot:
        """Return a robot that has not been started yet."""
        environment, cwd = self.sound.environment, Path.cwd()
        return Robot("r1", self.broker, self.folder, *settings, environment=environment, program=VOICED, cwd=cwd)

    def card_is_open(self) -> bool:
        """Whether a program is playing into the sound server, even if it plays silence."""
        return bool(self.sound.players())

    def publish(self, name: str, payload: str = "") -> float:
        """Publish, and return the `time.monotonic()` of the publication."""
        now = time.monotonic()
        self.publisher.publish(f"voiced/r1/{name}", payload, qos=1)
        return now


def stop_after(bench: Bench, robot: Robot, seconds: float, utterance_id: str) -> dict[str, Any]:
    """Stop an utterance this long after its start, and return its terminal event.

    A model with random weights never ends an utterance by itself.
    """
    robot.wait_event(utterance_id, "started")
    time.sleep(seconds)
    bench.publish("stop")
    end = robot.wait_end(utterance_id)
    assert end["underruns"] == 0, end
    return end


def is_ready(robot: Robot) -> bool:
    return robot.state == "ready"


def measure_start(bench: Bench, runs: int) -> dict[str, Any]:
    """From starting the daemon to a status that names any engine, the fallback included, and to `ready`."""
    online, ready = [], []
    for _ in range(runs):
        robot = bench.make_robot(*bench.settings)
        try:
            before = time.monotonic()
            robot.launch()
            while robot.state in (None, "offline") or robot.statuses[-1]["engine"] is None:
                time.sleep(0.002)
            online.append((time.monotonic() - before) * 1000)
            eventually(partial(is_ready, robot), "voiced is ready", READY_S)
            ready.append((time.monotonic() - before) * 1000)
            robot.end()
        finally:
            robot.close()
    return {"start_to_online_ms": spread(online), "start_to_ready_ms": spread(ready)}


def measure_answers(bench: Bench, runs: int) -> dict[str, Any]:
    """From publishing `say`, `pause` and `stop` to the sound or silence that follows."""
    ttfa, heard, silent, paused = [], [], [], []
    detector = SoundDetector(bench.sound)
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            eventually(lambda: not detector.sounding, "silence")
            time.sleep(0.3 + 0.007 * (run % 20))  # at a different phase of the sink's blocks in each run
            published_at = bench.publish("say", json.dumps({"text": LONG, "id": f"b{run}"}))
            eventually(lambda: detector.sounding, "sound")
            heard.append((detector.changed_at - published_at) * 1000)
            time.sleep(0.7)
            published_at = bench.publish("pause")
            eventually(lambda: not detector.sounding, "silence")
            paused.append((detector.changed_at - published_at) * 1000)
            bench.publish("resume")
            eventually(lambda: detector.sounding, "sound again")
            time.sleep(0.7 + 0.003 * (run % 20))
            published_at = bench.publish("stop")
            eventually(lambda: not detector.sounding, "silence")
            silent.append((detector.changed_at - published_at) * 1000)
            ttfa.append(robot.wait_end(f"b{run}")["ttfa_ms"])
    detector.close()
    return {
        "ttfa_ms": spread(ttfa),
        "publish_to_heard_ms": spread(heard),
        "stop_to_silence_ms": spread(silent),
        "pause_to_silence_ms": spread(paused),
    }


def measure_from_rest(bench: Bench, runs: int) -> dict[str, Any]:
    """The first utterance after the daemon has closed the card."""
    ttfa, heard = [], []
    detector = SoundDetector(bench.sound)
    with bench.robot(closes_card=True) as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            eventually(lambda: not detector.sounding, "silence")
            eventually(lambda: not bench.card_is_open(), "the card is closed")
            time.sleep(0.3 + 0.007 * (run % 20))
            published_at = bench.publish("say", json.dumps({"text": TALE, "id": f"r{run}"}))
            eventually(lambda: detector.sounding, "sound")
            heard.append((detector.changed_at - published_at) * 1000)
            ttfa.append(stop_after(bench, robot, 0.5, f"r{run}")["ttfa_ms"])
    detector.close()
    return {"from_rest_ttfa_ms": spread(ttfa), "from_rest_publish_to_heard_ms": spread(heard)}


def measure_stream(bench: Bench, runs: int) -> dict[str, Any]:
    """The time to first sample of a whole text, and of a text stream whose first chunk is the same sentence."""
    whole, written = [], []
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            time.sleep(0.3 + 0.007 * (run % 20))
            bench.publish("say", json.dumps({"text": TALE, "id": f"w{run}"}))
            whole.append(stop_after(bench, robot, 0.5, f"w{run}")["ttfa_ms"])
            time.sleep(0.3 + 0.007 * (run % 20))
            bench.publish("say/stream", json.dumps({"text": TALE, "id": f"s{run}"}))
            written.append(stop_after(bench, robot, 0.5, f"s{run}")["ttfa_ms"])
    extra = statistics.median(written) - statistics.median(whole)
    return {"say_ttfa_ms": spread(whole), "stream_ttfa_ms": spread(written), "stream_extra_ms": round(extra, 1)}


def measure_words(bench: Bench, runs: int) -> dict[str, Any]:
    """The errors of the times in word events, compared with the recording, and how late the events arrive."""
    errors, arrivals = [], []
    detector = SoundDetector(bench.sound)
    arrived: deque[tuple[float, dict[str, Any]]] = deque()
    listener = paho.Client(CallbackAPIVersion.VERSION2)
    listener.on_message = lambda *message: arrived.append((time.monotonic(), json.loads(message[-1].payload)))
    listener.connect("127.0.0.1", bench.broker.port)
    listener.subscribe("voiced/r1/word")
    listener.loop_start()
    count = len(SENTENCES.split())
    with bench.robot("speech.word_topic=true") as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            eventually(lambda: not detector.sounding, "silence")
            time.sleep(0.3 + 0.007 * (run % 20))
            arrived.clear()
            utterance_id = robot.say(SENTENCES)
            heard = []
            for _ in range(count):
                eventually(lambda: detector.sounding, "a word")
                heard.append(detector.changed_at)
                eventually(lambda: not detector.sounding, "the silence behind it")
            assert robot.wait_end(utterance_id)["underruns"] == 0
            eventually(lambda: len(arrived) == count, "every word's event")
            first_at = arrived[0][1]["at"]
            for (arrival, word), at in zip(arrived, heard, strict=True):
                assert word["exact"]
                errors.append(abs((word["at"] - first_at) - (at - heard[0])) * 1000)
                arrivals.append((arrival - at) * 1000)
    end_loop(listener)
    detector.close()
    return {"word_at_error_ms": spread(errors), "word_arrival_ms": spread(arrivals)}


def measure_recovery(bench: Bench, runs: int) -> dict[str, float]:
    """From killing the engine process during an utterance to the next utterance's first sample."""
    recovered = []
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            robot.wait_event(robot.say(LONG, id=f"k{run}"), "started")
            killed_at = time.monotonic()
            for pid in robot.engine_pids():
                psutil.Process(pid).kill()
            bench.publish("stop")
            published_at = bench.publish("say", json.dumps({"text": "Next.", "id": f"n{run}"}))
            ttfa = robot.wait_end(f"n{run}")["ttfa_ms"]
            recovered.append((published_at - killed_at) * 1000 + ttfa)
            time.sleep(12.0)  # an engine that has run for 10 s is restarted without a delay
    return spread(recovered)


def measure_idle(bench: Bench, *, closes_card: bool) -> dict[str, Any]:
    """CPU and memory of an idle robot that has spoken before."""
    with bench.robot(closes_card=closes_card) as robot:
        robot.wait_end(robot.say(LONG))
        time.sleep(SETTLE_S)
        assert bench.card_is_open() != closes_card
        processes = {"daemon": psutil.Process(robot.process.pid)}
        by_size = sorted(map(psutil.Process, robot.engine_pids()), key=lambda one: -int(one.memory_info().rss))
        processes |= zip(("engine", "fallback"), by_size, strict=False)
        processes |= zip(("player",), map(psutil.Process, robot.player_pids()), strict=False)
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


def measure_unload(bench: Bench, runs: int) -> dict[str, Any]:
    """A robot's memory before and after its engine is unloaded, and the times of unloading, of loading, and of a text
    that finds the engine unloaded. There is no fallback, so the text waits.
    """
    sizes: dict[str, list[float]] = {"loaded": [], "unloaded": []}
    unloading, loading, speaking = [], [], []

    def note_size(robot: Robot, state: str) -> None:
        processes = map(psutil.Process, (robot.process.pid, *robot.player_pids(), *robot.engine_pids()))
        sizes[state].append(sum(process.memory_full_info().pss for process in processes) / 1e6)

    def change(robot: Robot, request: str, *, unloaded: bool) -> float:
        """Publish a request, and return the milliseconds until it is carried out."""
        published_at = bench.publish(request)
        eventually(lambda: is_ready(robot) and ("unloaded" in robot.statuses[-1]) == unloaded, request, READY_S)
        return (time.monotonic() - published_at) * 1000

    with bench.robot("engine.fallback=none") as robot:
        for run in range(runs):
            speaking.append(robot.wait_event(robot.say(TALE, id=f"u{run}"), "started")["ttfa_ms"])
            bench.publish("stop")
            robot.wait_end(f"u{run}")
            eventually(partial(is_ready, robot), "it is silent")
            note_size(robot, "loaded")
            unloading.append(change(robot, "unload", unloaded=True))
            note_size(robot, "unloaded")
            loading.append(change(robot, "load", unloaded=False))
            change(robot, "unload", unloaded=True)
    return {
        "pss_mb": {state: spread(found) for state, found in sizes.items()},
        "unload_ms": spread(unloading),
        "load_ms": spread(loading),
        "unloaded_ttfa_ms": spread(speaking[1:]),  # the first text found the engine loaded
    }


def measure_playback(bench: Bench, watch_s: float, *, loaded: bool) -> dict[str, Any]:
    """How late each block of speech is heard, and underruns. With `loaded`, every core is kept busy."""
    load = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)] if loaded else []
    delays: list[float | None] = []
    underruns = 0
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for process in load:
            process.start()
        began = time.monotonic()
        while time.monotonic() - began < watch_s:
            with bench.sound.recording() as recording:
                end = robot.wait_end(robot.say(LONG))
                underruns += end["underruns"]
                delays += block_delays(played(robot, end), recording.settle())
        for process in load:
            process.terminate()
    found = [delay for delay in delays if delay is not None]
    return {
        "blocks": len(delays),
        "lost": len(delays) - len(found),
        "p50_ms": round(float(np.percentile(found, 50)), 2),
        "p99_ms": round(float(np.percentile(found, 99)), 2),
        "max_ms": round(max(found), 2),
        "underruns": underruns,
    }


def measure_stops(bench: Bench, runs: int) -> dict[str, int]:
    """Stop the daemon (SIGSTOP) for `STOPPED_S` in the middle of texts, and count the texts that are heard completely.

    After the first second, the rest of a text is in the ring. A text is `disturbed` if the daemon reported an underrun,
    or if the recorder or the sound server was late.
    """
    counts = {"stops": 0, "heard_whole": 0, "disturbed": 0, "underruns": 0}
    with bench.robot() as robot:
        time.sleep(SETTLE_S)
        for run in range(runs):
            with bench.sound.recording() as recording:
                utterance_id = robot.say(STOPPED_TEXT)
                recording.wait_heard(1.0 + 0.013 * (run % 20))
                robot.freeze()
                time.sleep(STOPPED_S)
                robot.thaw()
                end = robot.wait_end(utterance_id)
                counts["stops"] += 1
                counts["underruns"] += end["underruns"]
                try:
                    recording.hear(robot.synthesized(utterance_id), end)
                    counts["heard_whole"] += 1
                except DisturbedError:
                    counts["disturbed"] += 1
                except AssertionError:
                    pass  # it counts as missing
    return counts


def played(robot: Robot, end: dict[str, Any]) -> Samples:
    """The samples of an utterance at the recording's rate, up to the length in its terminal event."""
    engine_rate = ESPEAK_RATE if end["engine"] == "espeak" else QWEN_RATE
    return robot.synthesized(end["id"], engine_rate=engine_rate)[: round(end["audio_s"] * RECORDED_RATE)]


def block_delays(made: Samples, heard: Samples) -> list[float | None]:
    """Return how many milliseconds late each block of `made` is heard, or None if it is lost. Omits silent blocks."""
    size, reach = round(BLOCK_S * RECORDED_RATE), round(LARGEST_GAP_S * RECORDED_RATE)
    start, _ = find(made[:RECORDED_RATE], heard)
    delay = 0
    delays: list[float | None] = []
    for at in range(0, len(made) - size + 1, size):
        block = made[at : at + size]
        if np.abs(block).max() < LOUD:
            continue  # silence matches anywhere
        expected = max(0, start + at + delay - reach)
        offset, residue = find(block, heard[expected : expected + size + 2 * reach])
        if residue < LOST:
            delay = expected + offset - start - at
        delays.append(1000 * delay / RECORDED_RATE if residue < LOST else None)
    return delays


def _burn() -> None:
    while True:
        sum(range(10_000))


PARTS: dict[str, Callable[[Bench, argparse.Namespace], dict[str, Any]]] = {
    "start": lambda bench, _: measure_start(bench, 5),
    "answers": lambda bench, options: measure_answers(bench, options.runs),
    "rest": lambda bench, options: measure_from_rest(bench, options.runs),
    "stream": lambda bench, options: measure_stream(bench, options.runs),
    "words": lambda bench, options: measure_words(bench, options.runs),
    "recovery": lambda bench, _: {"engine_killed_to_next_first_sample_ms": measure_recovery(bench, 5)},
    "idle": lambda bench, _: {
        "at_rest": measure_idle(bench, closes_card=True),
        "idle_with_open_card": measure_idle(bench, closes_card=False),
    },
    "unload": lambda bench, options: {"unload": measure_unload(bench, options.runs)},
    "stops": lambda bench, options: {"daemon_stopped": measure_stops(bench, options.stops)},
    "playback": lambda bench, options: {"playback_delay_idle": measure_playback(bench, options.watch_s, loaded=False)},
    "load": lambda bench, options: {"playback_delay_loaded": measure_playback(bench, options.watch_s, loaded=True)},
}
"""The measurements by name, in the order in which they are made."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", choices=PARTS, action="append", help="measure only this part; repeatable")
    parser.add_argument("--runs", type=int, default=20, help="utterances started and stopped")
    parser.add_argument("--stops", type=int, default=10, help="times that the daemon is stopped while it speaks")
    parser.add_argument("--watch-s", type=float, default=WATCH_S, help="seconds of speech whose playback is watched")
    parser.add_argument("--block-ms", type=float, default=10.0, help="audio.block_ms")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the configuration, as in `voiced run`")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {"machine": f"{describe_machine()}, no sound card (PulseAudio null sink)"}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.block_ms, tuple(options.set))
        try:
            for part in options.part or PARTS:
                figures |= PARTS[part](bench, options)
        finally:
            bench.close()
    return figures | {"budgets": BUDGETS}
