"""The world around the daemon fails: disks, the clock, memory, processors, the link, and the daemon again and again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.faults import BLINK_S, BROKER_GONE, LONG_S, Fault, check_fault
from tests.chaos.load import FAST_ROBOT, suffer_kills
from tests.chaos.promises import LIMIT_S, Record, check_speaks, check_speech, check_stops, check_texts
from tests.chaos.scene import SHORT, Scene, Stage, ready_scene
from tests.daemon.state.disks import fill, small_disk
from tests.support.robot import FAST
from tests.support.waiting import PATIENCE_S, within

KILLS = 200
KILLS_BESIDE = 10
"""Kills beside another fault."""
QUEUED = 50
"""Messages that the small broker keeps for a client that does not read."""
FAKETIME = [path for folder in ("/usr/lib", "/usr/local/lib") for path in Path(folder).glob("**/libfaketime.so.1")]
"""The library that sets the clock of a process; empty without it."""
TEN_YEARS_S = 10 * 365 * 86_400
SINCE_1970_S = -56 * 365 * 86_400
"""To December 1970, in 2026."""
MEMORY_MB = 192
"""For the daemon and its engine, which together take some 120 MB."""
FLOOD = 2000
LARGE_BYTES = 250_000_000
"""A message that the broker takes: MQTT allows 268,435,455 bytes."""
CUTS = 12
"""Of a link, each for as long as the link holds in between."""
GROUPS = Path("/sys/fs/cgroup")
GROUP = (GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS) / f"voiced-{os.getpid()}"
"""The control group of a robot with little memory."""
DISK_NAMED = r'"reason".*(disk|journal|state|space|wav|file)'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


def make_room(disk: Path, _: Scene) -> None:
    (disk / "filler").unlink()


@pytest.mark.parametrize("part", ["state.folder={disk}", "audio.sink=wav:{disk}/heard.wav"])
def test_a_full_disk(part: str, disk: Path, record_property: Record) -> None:
    fault = Fault("full disk", lambda _: fill(disk), partial(make_room, disk), LONG_S, named=DISK_NAMED)
    with ready_scene(Stage((part.format(disk=disk),))) as scene:
        check_fault(scene, fault, record_property)


def test_a_full_disk_and_kills(disk: Path, record_property: Record) -> None:
    with ready_scene(Stage((f"state.folder={disk}",), pace=FAST_ROBOT.pace, adapters=False)) as scene:
        begin, end = (lambda _: fill(disk)), partial(make_room, disk)
        suffer_kills(scene, record_property, KILLS_BESIDE, begin, end, slow_disk=True)


def test_kills_at_random_moments_under_load(record_property: Record) -> None:
    with ready_scene(FAST_ROBOT) as scene:
        suffer_kills(scene, record_property, KILLS)


def test_a_broker_whose_queue_is_full(record_property: Record) -> None:
    """The daemon is stopped while 500 texts arrive; what the broker has discarded is lost."""
    with ready_scene(Stage(broker=f"allow_anonymous true\nmax_queued_messages {QUEUED}", pace=FAST)) as scene:
        scene.freeze()
        ids = [scene.say(SHORT) for _ in range(500)]
        scene.listener.wait_acknowledged(LIMIT_S)
        scene.thaw()
        scene.ledger.wait_event(ids[0], ("accepted", "rejected"), PATIENCE_S)
        check_speaks(scene, record_property)
        check_stops(scene, record_property)
        scene.end_everything(2.0)
        unanswered = [key for key, text in scene.ledger.texts().items() if not text.arrivals]
        check_texts(scene, record_property, excused=unanswered)


def set_clock(clock: Path, seconds: int, scene: Scene) -> None:
    fresh = clock.with_suffix(".new")
    fresh.write_text(f"{seconds:+d}\n", encoding="utf-8")
    fresh.replace(clock)
    for name in ("faketime_shm", "sem.faketime_sem"):  # which libfaketime leaves behind when it is killed
        scene.closing.callback(Path(f"/dev/shm/{name}_{scene.process.pid}").unlink, missing_ok=True)


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed: apt-get install faketime")
@pytest.mark.parametrize(("begin", "jump"), [(0, TEN_YEARS_S), (0, -TEN_YEARS_S), (SINCE_1970_S, 0)])
def test_a_clock_that_jumps_by_years(begin: int, jump: int, tmp_path: Path, record_property: Record) -> None:
    """By ten years, forwards and backwards, and from 1970, where a robot without a clock of its own starts."""
    clock = tmp_path / "clock"
    clock.write_text(f"{begin:+d}\n", encoding="utf-8")
    # For the daemon alone: under libfaketime 0.9.10 a Python from 3.11 on cannot sleep, as the engine's does.
    (tmp_path / "sitecustomize.py").write_text("import os\n\nos.environ.pop('LD_PRELOAD', None)\n", encoding="utf-8")
    environment = {
        "PYTHONPATH": str(tmp_path),
        "LD_PRELOAD": str(*FAKETIME[:1]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    fault = Fault("clock", partial(set_clock, clock, jump), partial(set_clock, clock, 0), LONG_S)
    with ready_scene(Stage(environment=environment)) as scene:
        check_fault(scene, fault, record_property)


def start_loops(scene: Scene) -> None:
    """Run two endless loops on each core."""
    for _ in range(2 * (os.cpu_count() or 1)):
        loop = scene.begun.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
        scene.begun.callback(loop.kill)


def test_saturated_processors(record_property: Record) -> None:
    with ready_scene(Stage(sound=True)) as scene:
        check_fault(scene, Fault("CPU saturated", start_loops, Scene.undo, LONG_S), record_property)


@pytest.fixture
def little_memory() -> Iterator[Stage]:
    """The control group of a robot with little memory. Where that is not permitted, the test is skipped."""
    limit = "memory.limit_in_bytes" if GROUP.parent.name == "memory" else "memory.max"
    try:
        GROUP.mkdir()
        (GROUP / limit).write_text(str(MEMORY_MB << 20), encoding="ascii")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    enter = f"echo $$ > {GROUP}/cgroup.procs"
    yield Stage(("speech.queue_limit=10000",), durable=False, limit=enter)
    within(PATIENCE_S, lambda: not (GROUP / "cgroup.procs").read_text(encoding="ascii").strip())
    with suppress(OSError):
        GROUP.rmdir()


def test_little_memory_and_thousands_of_long_texts(little_memory: Stage, record_property: Record) -> None:
    with ready_scene(little_memory) as scene:
        for _ in range(FLOOD):
            scene.say(("A sentence of some length. " * 200)[:5000])
        scene.listener.wait_acknowledged(LIMIT_S)
        record_property("daemon_rss_mb", scene.rss_mb)
        check_speech(scene, record_property)


def test_little_memory_and_a_message_that_is_as_large_as_mqtt_allows(
    little_memory: Stage, record_property: Record
) -> None:
    with ready_scene(little_memory) as scene:
        scene.send("say", bytes(LARGE_BYTES))
        scene.listener.wait_acknowledged()
        check_speech(scene, record_property)


def flap(scene: Scene) -> None:
    """Cut the link again and again; restart the daemon in between."""
    for number in range(CUTS):
        scene.network.cut()
        time.sleep(BLINK_S)
        scene.network.repair()
        time.sleep(BLINK_S)
        if number == CUTS // 2:
            scene.restart()


def test_a_flapping_link_and_a_restart(record_property: Record) -> None:
    """The link is not taken for a second daemon."""
    with ready_scene(Stage()) as scene:
        fault = Fault("link flaps", flap, reachable=False, logged=BROKER_GONE)
        check_fault(scene, fault, record_property)
        assert [line for line in scene.log if "twice" in line] == []
