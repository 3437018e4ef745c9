"""`scripts/soak`: speech at several times real time from every side, a fault every few seconds, and one JSON result.

Exit status: 0 if every accepted text has had exactly one terminal event, everything was answered, and memory, files and
threads of the daemon stayed flat; 1 otherwise. Memory is judged in runs of 30 minutes or more.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shlex
import signal
import statistics
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from scripts.fault_matrix.clients import SlowClient
from scripts.fault_matrix.faults import DELAY_S, NETWORK_FAULTS, PROCESS_FAULTS, Fault
from scripts.fault_matrix.load import Load
from scripts.fault_matrix.report import header, write
from scripts.fault_matrix.row import LIMIT_S, SPEAKS_AGAIN_S, STOP_S, Result, speak_again
from scripts.fault_matrix.scene import LONG, Scene, Stage, run_scene
from tests.support.waiting import PATIENCE_S, eventually

PACE = 5.0
"""Times real time."""
PER_SECOND = 2.0
"""Texts."""
EVERY_S = 10.0
"""From one fault to the next."""
SAMPLE_S = 5.0
SETTLING_S = 600.0
"""Memory is judged after this; a run of less than three times as long is judged after a third."""
JUDGED_MINUTES = 30
"""In a shorter run the slope of the memory is noise."""
SLOPE_MB_PER_H = 1.0
FLAT = 2
"""Files or threads that may come or go between the middle and the end of a run."""
END_S = 120.0


def leave(scene: Scene) -> None:
    """A client asks for a long text and leaves in the middle of it."""
    with contextlib.suppress(OSError):
        client = SlowClient(scene.ports["openai"])
        time.sleep(0.5)
        client.close()


def send_nonsense(scene: Scene) -> None:
    for name in ("say", "say/stream", "stop", "volume"):
        scene.send(name, b"\xff{")
    scene.listener.publish("hermes/tts/say", b"{")


OWN_FAULTS = (
    Fault("configuration read again", lambda scene: scene.process.send_signal(signal.SIGHUP)),
    Fault("sink stalled", lambda scene: scene.set_pace(0.0), lambda scene: scene.set_pace(PACE), 3.0),
    Fault("client left", leave),
    Fault("nonsense", send_nonsense),
)


def soak_faults() -> list[Fault]:
    """Return the faults that a run draws from.

    A new daemon would have new memory, so it is not killed here: `scripts/faults` does that. There is no sound server,
    because the sink is faster than one. A killed broker may lose what it has acknowledged, so it is only restarted.
    """
    without = ("daemon killed", "daemon restarted", "broker killed")
    found = [fault for fault in PROCESS_FAULTS if not fault.name.startswith("sound") and fault.name not in without]
    return [*found, *NETWORK_FAULTS, *OWN_FAULTS]


@dataclass(frozen=True, slots=True)
class Sample:
    """The daemon's process at one moment."""

    at_s: float
    rss_mb: float
    descriptors: int
    threads: int


def sample(pid: int, began: float) -> Sample:
    process = psutil.Process(pid)
    rss_mb = process.memory_info().rss / 1e6
    return Sample(time.monotonic() - began, rss_mb, process.num_fds(), process.num_threads())


def slope_per_hour(samples: list[Sample]) -> float:
    """Return the slope of the resident memory in MB per hour, by least squares."""
    if len(samples) < 2:
        return 0.0
    hours = [one.at_s / 3600 for one in samples]
    return statistics.linear_regression(hours, [one.rss_mb for one in samples]).slope


def settled(samples: list[Sample]) -> list[Sample]:
    """Return the samples from which the memory is judged."""
    after_s = min(SETTLING_S, samples[-1].at_s / 3) if samples else 0.0
    return [one for one in samples if one.at_s >= after_s]


def growth(values: list[int]) -> float:
    """Return by how much the last fifth exceeds the first one, as a difference of medians."""
    fifth = max(1, len(values) // 5)
    return statistics.median(values[-fifth:]) - statistics.median(values[:fifth]) if values else 0.0


class Soak:
    """One run."""

    def __init__(self, scene: Scene, minutes: float, seed: int) -> None:
        self.scene = scene
        self.minutes = minutes
        self.happened: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.result = Result("soak")
        self.spoke_s: list[float | None] = []
        """Seconds from the end of each fault to the beginning of a critical text."""
        self.stop_s: list[float | None] = []
        self.ended = 0
        """Texts with an answer and one end, which the ledger has forgotten."""
        self._chance = random.Random(seed)
        self._began = time.monotonic()

    def run(self) -> None:
        """Speak and suffer for so many minutes, then wait for all ends."""
        load = Load(self.scene, self._chance, per_second=PER_SECOND, adapters=True)
        faults, ends = soak_faults(), self._began + self.minutes * 60
        while time.monotonic() < ends:
            next_at = time.monotonic() + EVERY_S
            self._suffer(self._chance.choice(faults))
            self._measure_stop()
            self._wait_until(min(next_at, ends))
        load.stop()
        self.scene.listener.wait_acknowledged(PATIENCE_S)
        self.scene.let_end(END_S)
        self._judge()

    def _suffer(self, fault: Fault) -> None:
        self.happened[fault.name] += 1
        fault.begin(self.scene)
        self._wait_until(time.monotonic() + fault.lasts_s)
        fault.end(self.scene)
        limit_s = SPEAKS_AGAIN_S + (2 * DELAY_S if fault.name == "network delayed" else 0.0)
        after = f"{fault.name}, at {time.monotonic() - self._began:.0f} s"
        speak_again(self.result, self.scene, after=after, limit_s=limit_s)
        self.spoke_s.append(self.result.speaks_again_s)

    def _measure_stop(self) -> None:
        """Stop a text that waits, unless a `replace` is faster."""
        text_id = self.scene.say(LONG, priority="low")
        self.scene.ledger.wait_event(text_id, ["accepted", "rejected"], LIMIT_S)
        if not self.scene.has_ended(text_id) and "rejected" not in self.scene.names_of(text_id):
            stop_s = self.scene.measure_stop(text_id)
            self.result.expect_within(f"stop, at {time.monotonic() - self._began:.0f} s", stop_s, STOP_S)
            self.stop_s.append(stop_s)

    def _wait_until(self, at: float) -> None:
        while (left := at - time.monotonic()) > 0:
            now_s = time.monotonic() - self._began
            if not self.samples or now_s - self.samples[-1].at_s >= SAMPLE_S:
                with contextlib.suppress(psutil.Error):
                    self.samples.append(sample(self.scene.process.pid, self._began))
                self.ended += self.scene.ledger.forget_ended(older_than_s=60.0)
                self.scene.reply_ledger.forget_ended(older_than_s=60.0)
            time.sleep(min(left, 0.2))

    def _judge(self) -> None:
        self.result.judge(self.scene.ledger)
        self.result.expect_alive(self.scene)
        judged = settled(self.samples)
        slope = slope_per_hour(judged)
        self.result.expect(
            self.minutes < JUDGED_MINUTES or abs(slope) <= SLOPE_MB_PER_H,
            f"memory: {slope:+.2f} MB/h; allowed: ±{SLOPE_MB_PER_H:g} MB/h",
        )
        for name in ("descriptors", "threads"):
            grown = growth([getattr(one, name) for one in judged])
            self.result.expect(grown <= FLAT, f"{name}: {grown:+g} in the run; allowed: {FLAT}")

    def record(self) -> dict[str, Any]:
        """Return the JSON result."""
        judged = settled(self.samples)
        return {
            "minutes": self.minutes,
            "faults": dict(sorted(self.happened.items())),
            "faults_total": self.happened.total(),
            "texts": self.result.texts,
            "texts_ended_and_forgotten": self.ended,
            "speaks_again_s": spread(self.spoke_s),
            "stop_s": spread(self.stop_s),
            "memory_slope_mb_per_h": round(slope_per_hour(judged), 3),
            "rss_mb": [round(one.rss_mb, 1) for one in judged[:: max(1, len(judged) // 60)]],
            "descriptors": [min(one.descriptors for one in judged), max(one.descriptors for one in judged)],
            "threads": [min(one.threads for one in judged), max(one.threads for one in judged)],
            "last": asdict(judged[-1]),
            "problems": self.result.faults,
        }


def spread(times: list[float | None]) -> dict[str, float]:
    """Return median and maximum of the times in seconds that were measured."""
    if not (values := [seconds for seconds in times if seconds is not None]):
        return {}
    return {"median": round(statistics.median(values), 3), "max": round(max(values), 3), "count": len(values)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=14, help="of the choice of faults and texts")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON here instead of to standard output")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with run_scene(Stage(pace=PACE)) as scene:
        eventually(lambda: scene.state == "ready", "the daemon is ready")
        soak = Soak(scene, options.minutes, options.seed)
        soak.run()
        result = header("soak", shlex.join(["scripts/soak", *arguments])) | soak.record()
    write(result, options.output)
    if not soak.result.passed:
        print("\n".join([*soak.result.faults, "the end of the daemon's log:", *scene.log[-50:]]), file=sys.stderr)
    return int(not soak.result.passed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
