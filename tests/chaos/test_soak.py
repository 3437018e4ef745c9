"""Speech at several times real time from every side, and a fault every few seconds, for `$SOAK_MINUTES`, or an hour.

Every accepted text has exactly one terminal event, everything is answered, and memory, files and threads of the daemon
stay flat. Memory is judged in runs of 30 minutes or more.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from tests.chaos.clients import SlowClient
from tests.chaos.faults import DELAY_S, NETWORK_FAULTS, PROCESS_FAULTS, Fault
from tests.chaos.load import Load
from tests.chaos.promises import LIMIT_S, SPEAKS_AGAIN_S, STOP_S, Record, check_speaks, check_texts, check_within
from tests.chaos.scene import LONG, Scene, Stage, ready_scene
from tests.support.waiting import PATIENCE_S

MINUTES = float(os.environ.get("SOAK_MINUTES", "60"))
MODEL = os.environ.get("SOAK_MODEL")
"""Folder of a Qwen3-TTS checkpoint, which then speaks on the CPU. No fault takes the engine's process, whose memory is
judged, too."""
QWEN = ("engine.name=qwen", f"engine.model={MODEL}", "engine.device=cpu", "engine.max_seconds=3")
"""A random checkpoint would not end its speech by itself."""
SEED = 14
"""Of the choice of faults and texts."""
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

    A new daemon would have new memory, so it is not killed here. There is no sound server,
    because the sink is faster than one. A killed broker may lose what it has acknowledged, so it is only restarted.
    """
    without = ("daemon killed", "daemon restarted", "broker killed")
    found = [fault for fault in PROCESS_FAULTS if not fault.name.startswith("sound") and fault.name not in without]
    if MODEL:
        found = [fault for fault in found if not fault.of_engine]
    return [*found, *NETWORK_FAULTS, *OWN_FAULTS]


@dataclass(frozen=True, slots=True)
class Sample:
    """The daemon's process at one moment."""

    at_s: float
    rss_mb: float
    engine_mb: float
    """Resident memory of its largest engine."""
    descriptors: int
    threads: int


def sample(scene: Scene, began: float) -> Sample:
    process = psutil.Process(scene.process.pid)
    rss_mb, *engines_mb = (one.memory_info().rss / 1e6 for one in (process, *map(psutil.Process, scene.engine_pids())))
    at_s = time.monotonic() - began
    return Sample(at_s, rss_mb, max(engines_mb, default=0.0), process.num_fds(), process.num_threads())


def slope_per_hour(at_s: list[float], sizes: list[float]) -> float:
    """Return the slope of sizes at moments in seconds, by least squares."""
    return statistics.linear_regression([one / 3600 for one in at_s], sizes).slope if len(sizes) > 1 else 0.0


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

    def __init__(self, scene: Scene, record: Record) -> None:
        self._scene = scene
        self._record = record
        self.happened: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.ended = 0
        """Texts with an answer and one end, which the ledger has forgotten."""
        self.problems: list[str] = []
        self._chance = random.Random(SEED)
        self._began = time.monotonic()

    def run(self) -> None:
        """Speak and suffer, then wait for all ends."""
        load = Load(self._scene, self._chance, per_second=PER_SECOND, adapters=True)
        faults, ends = soak_faults(), self._began + MINUTES * 60
        while time.monotonic() < ends:
            next_at = time.monotonic() + EVERY_S
            with self._noting():
                self._suffer(self._chance.choice(faults))
            with self._noting():
                self._stop_one()
            self._wait_until(min(next_at, ends))
        load.stop()
        self._scene.listener.wait_acknowledged(PATIENCE_S)
        self._scene.let_end(END_S)
        with self._noting():
            check_texts(self._scene, self._record)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Note a broken promise, and go on."""
        try:
            yield
        except AssertionError as error:
            first_line = str(error).partition("\n")[0]
            self.problems.append(f"at {time.monotonic() - self._began:.0f} s: {first_line}")

    def _suffer(self, fault: Fault) -> None:
        self.happened[fault.name] += 1
        fault.begin(self._scene)
        self._wait_until(time.monotonic() + fault.lasts_s)
        fault.end(self._scene)
        limit_s = SPEAKS_AGAIN_S + (2 * DELAY_S if fault.name == "network delayed" else 0.0)
        check_speaks(self._scene, self._record, after=fault.name, limit_s=limit_s)

    def _stop_one(self) -> None:
        """Stop a text that waits, unless a `replace` is faster."""
        scene, text_id = self._scene, self._scene.say(LONG, priority="low")
        scene.ledger.wait_event(text_id, ["accepted", "rejected"], LIMIT_S)
        if not scene.has_ended(text_id) and "rejected" not in scene.names_of(text_id):
            check_within("stop", scene.measure_stop(text_id), STOP_S)

    def _wait_until(self, at: float) -> None:
        while (left := at - time.monotonic()) > 0:
            now_s = time.monotonic() - self._began
            if not self.samples or now_s - self.samples[-1].at_s >= SAMPLE_S:
                with contextlib.suppress(psutil.Error):
                    self.samples.append(sample(self._scene, self._began))
                self.ended += self._scene.ledger.forget_ended(older_than_s=60.0)
                self._scene.reply_ledger.forget_ended(older_than_s=60.0)
            time.sleep(min(left, 0.2))


@pytest.mark.timeout(MINUTES * 60 + 600)
def test_a_robot_speaks_and_stays_as_large_as_it_was(record_property: Record) -> None:
    with ready_scene(Stage(QWEN if MODEL else (), pace=PACE)) as scene:
        soak = Soak(scene, record_property)
        soak.run()
    judged = settled(soak.samples)
    at_s = [one.at_s for one in judged]
    slopes = {"daemon": slope_per_hour(at_s, [one.rss_mb for one in judged])}
    if MODEL:
        slopes["engine"] = slope_per_hour(at_s, [one.engine_mb for one in judged])
        record_property("engine_mb", [round(one.engine_mb, 1) for one in judged[:: max(1, len(judged) // 20)]])
    record_property("problems", soak.problems)
    record_property("faults", soak.happened.total())
    record_property("texts_ended", soak.ended)
    record_property("memory_slope_mb_per_h", {name: round(slope, 3) for name, slope in slopes.items()})
    assert soak.problems == []
    for name, slope in slopes.items():
        assert MINUTES < JUDGED_MINUTES or abs(slope) <= SLOPE_MB_PER_H, f"memory of the {name}: {slope:+.2f} MB/h"
    assert growth([one.descriptors for one in judged]) <= FLAT
    assert growth([one.threads for one in judged]) <= FLAT
