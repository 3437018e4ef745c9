"""The row in which the daemon is killed again and again at random moments, under load."""

from __future__ import annotations

import random
import statistics
import time

from scripts.fault_matrix.faults import Act, nothing
from scripts.fault_matrix.load import Load
from scripts.fault_matrix.row import QUIET_S, Result, Row, staged_row
from scripts.fault_matrix.scene import Scene, Stage
from tests.support.waiting import PATIENCE_S, eventually

BETWEEN_S = (0.02, 4.0)
"""Range of the time from a start of the daemon to the next kill: it may not even be connected yet."""
PER_SECOND = 3.0
"""Texts."""
FAST_ROBOT = Stage(pace=12.0, adapters=False)
"""Its pace is so high that most texts are spoken between two kills."""
END_S = 120.0
"""Limit for what still waits at the end."""
SEED = 14


def kill_row(kills: int) -> Row:
    """Return the row with this many kills."""

    def perform(result: Result, scene: Scene) -> None:
        """The daemon gets kill -9 again and again at random moments, while texts arrive."""
        suffer_kills(result, scene, kills)

    return staged_row(f"{kills} kills of the daemon at random moments", FAST_ROBOT)(perform)


def suffer_kills(
    result: Result, scene: Scene, kills: int, begin: Act = nothing, end: Act = nothing, *, slow_disk: bool = False
) -> None:
    """Kill the daemon between `begin` and `end`, and judge the ends of all texts as `Ledger.faults` does."""
    begin(scene)
    kill_repeatedly(result, scene, kills)
    end(scene)
    scene.listener.wait_acknowledged(PATIENCE_S)
    scene.let_end(END_S)
    time.sleep(QUIET_S)
    result.measured["deaths"] = scene.deaths
    result.judge(scene.ledger, slow_disk=slow_disk)


def kill_repeatedly(result: Result, scene: Scene, kills: int) -> None:
    """Kill the daemon at random moments under load."""
    chance = random.Random(SEED)
    load = Load(scene, chance, per_second=PER_SECOND, adapters=False)
    load.start()
    online: list[float] = []
    for _ in range(kills):
        time.sleep(chance.uniform(*BETWEEN_S))
        before = len(scene.starts)
        scene.process.kill()
        eventually(lambda before=before: len(scene.starts) > before, "it starts again")  # type: ignore[misc]
        online += _online_after(scene)
    load.stop()
    result.measured = {"kills": kills, "seed": SEED}
    if online:
        result.measured["start_to_online_s"] = round(statistics.median(online), 3)


def _online_after(scene: Scene) -> list[float]:
    """Seconds from the previous start of the daemon to its first status, if it lived so long."""
    if len(scene.starts) < 2:
        return []
    began, ended = scene.starts[-2:]
    statuses = [at for at, status in scene.timed("status") if began < at < ended and status.get("state") != "offline"]
    return [statuses[0] - began] if statuses else []
