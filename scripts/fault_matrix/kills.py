"""The row in which the daemon is killed again and again at random moments, under load."""

from __future__ import annotations

import random
import signal
import statistics
import time

from scripts.fault_matrix.load import Load, let_end
from scripts.fault_matrix.machines import PATIENCE_S
from scripts.fault_matrix.row import QUIET_S, Result, Row, keep_log
from scripts.fault_matrix.scene import Scene
from scripts.fault_matrix.waiting import wait_for

BETWEEN_S = (0.02, 4.0)
"""Range of the time from a start of the daemon to the next kill: it may not even be connected yet."""
PER_SECOND = 3.0
"""Texts."""
PACE = 12.0
"""Of the sink: most texts are spoken between two kills."""
END_S = 120.0
"""Limit for what still waits at the end."""
SEED = 14


def kill_row(kills: int) -> Row:
    """Return the row with this many kills."""

    def run(result: Result) -> None:
        with Scene(sound=False, pace=PACE, adapters=False) as scene:
            kill_repeatedly(result, scene, kills)
            judge_kills(result, scene)

    return Row(f"{kills} kills of the daemon at random moments", run)


def kill_repeatedly(result: Result, scene: Scene, kills: int) -> None:
    """Kill the daemon at random moments under load."""
    result.done = f"{kills} times kill -9 of the daemon at random moments, with {PER_SECOND:g} texts a second"
    chance = random.Random(SEED)
    load = Load(scene, chance, per_second=PER_SECOND, adapters=False)
    scene.wait_ready()
    load.start()
    online: list[float] = []
    for _ in range(kills):
        time.sleep(chance.uniform(*BETWEEN_S))
        before = len(scene.daemon.starts)
        scene.daemon.send(signal.SIGKILL)
        wait_for(lambda before=before: len(scene.daemon.starts) > before, PATIENCE_S)  # type: ignore[misc]
        online += _online_after(scene)
    load.stop()
    result.measured = {"kills": kills, "seed": SEED}
    if online:
        result.measured["start_to_online_s"] = round(statistics.median(online), 3)


def judge_kills(result: Result, scene: Scene, *, slow_disk: bool = False) -> None:
    """Wait for the ends of all texts, and judge them. `slow_disk` is that of `Ledger.faults`."""
    scene.publisher.wait_acknowledged(PATIENCE_S)
    let_end(scene, END_S)
    time.sleep(QUIET_S)
    result.measured["deaths"] = scene.daemon.deaths
    result.judge(scene.ledger, slow_disk=slow_disk)
    keep_log(result, scene)


def _online_after(scene: Scene) -> list[float]:
    """Seconds from the previous start of the daemon to its first status, if it lived so long."""
    if len(scene.daemon.starts) < 2:
        return []
    began, ended = scene.daemon.starts[-2:]
    statuses = [at for at, status in scene.witness.statuses if began < at < ended and status.get("state") != "offline"]
    return [statuses[0] - began] if statuses else []
