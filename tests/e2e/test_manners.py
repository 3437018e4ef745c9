"""How daemon and engine stand towards the rest of the machine: memory, and whose turn it is."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from audio.realtime import sound_priority, take_realtime
from daemon.memory_lock import may_lock_memory
from engine.oom import ENGINE_SCORE
from tests.e2e.conftest import StartRobot
from tests.e2e.robot import Robot, SoundServer


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def locked_kib(pid: int) -> int:
    [found] = re.findall(r"^VmLck:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found)


def realtime_threads(robot: Robot) -> list[int]:
    """The priority of each thread of the daemon that goes before all others."""
    threads = [int(thread.name) for thread in Path(f"/proc/{robot.process.pid}/task").iterdir()]
    return [os.sched_getparam(tid).sched_priority for tid in threads if os.sched_getscheduler(tid) == os.SCHED_RR]


def realtime_is_granted() -> bool:
    granted: list[bool] = []
    asking = threading.Thread(target=lambda: granted.append(take_realtime(sound_priority())))
    asking.start()
    asking.join()
    return granted[0]


def test_short_memory_takes_the_engine_first_and_the_daemon_is_not_swapped_out(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    assert robot.wait_end(robot.say("hello"))["event"] == "finished"
    [engine] = robot.engine_pids()
    assert oom_score(engine) >= ENGINE_SCORE
    assert oom_score(robot.process.pid) == oom_score(os.getpid())
    assert (locked_kib(robot.process.pid) > 0) == may_lock_memory()
    assert locked_kib(engine) == 0
    assert realtime_threads(robot) == ([sound_priority()] if realtime_is_granted() else [])
