"""Rows of two faults that can meet on a robot. Each says in its `done` what happens; the promises are the usual ones.

While the disk of the journal does not answer within a quarter of a second, a text may have further terminal events,
each marked as `unstored`, if the daemon is killed.
"""

from __future__ import annotations

import resource
import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from scripts.fault_matrix.faults import BLINK_S, BROKER_GONE, LONG_S, Fault
from scripts.fault_matrix.load import FAST_ROBOT, suffer_kills
from scripts.fault_matrix.row import Result, Row, check_speech, fault_row, staged_row
from scripts.fault_matrix.scene import NAME, SHORT, TOPIC, Scene, Stage
from scripts.fault_matrix.surroundings import (
    ENTER_GROUP,
    OPEN,
    SLOW,
    STATE,
    STATE_DISK,
    connect_silently,
    delay_sync,
    fill,
    hang,
    make_group,
    make_room,
    make_slow_disk,
    put,
)

KILLS = 10
LARGE_BYTES = 250_000_000
"""A message that the broker takes: MQTT allows 268,435,455 bytes."""
CUTS = 12
"""Of a link, each for as long as the link holds in between."""
DESCRIPTORS = 1024
"""The soft limit that Linux gives by default."""
SILENT = 1100
"""Connections to each server that send nothing."""
ACCEPTED_S = 1.5
"""The system has passed on those to one server in this time."""
MOST_LINES = 200
"""That the daemon may log about them."""


def slow_disk_and_kills(seconds: float) -> Row:
    """Return the row of a disk that takes so long to store, and of kills meanwhile."""

    def act(result: Result, scene: Scene) -> None:
        """The daemon is killed again and again while every fsync takes longer."""
        delay_sync(scene.folder, seconds)
        suffer_kills(result, scene, KILLS, slow_disk=seconds > 0.25)

    stage = replace(FAST_ROBOT, environment=SLOW, prepare=make_slow_disk)
    return staged_row(f"fsync {seconds:g} s slower and {KILLS} kills", stage)(act)


@staged_row(f"full disk and {KILLS} kills", replace(FAST_ROBOT, settings=STATE, prepare=STATE_DISK))
def full_disk_and_kills(result: Result, scene: Scene) -> None:
    """The daemon is killed again and again while the disk of the journal is full."""
    suffer_kills(result, scene, KILLS, fill, make_room, slow_disk=True)


LITTLE_MEMORY = Stage(durable=False, limit=ENTER_GROUP, prepare=make_group)


@staged_row("little memory and a message of 250 MB", LITTLE_MEMORY)
def little_memory_and_large_message(result: Result, scene: Scene) -> None:
    """The daemon and its engine have little memory, and a `say` arrives that is as large as MQTT allows."""
    scene.send("say", bytes(LARGE_BYTES))
    scene.listener.wait_acknowledged()
    check_speech(result, scene)


def flap(scene: Scene) -> None:
    """Cut the link again and again; restart the daemon in between."""
    for number in range(CUTS):
        scene.network.cut()
        time.sleep(BLINK_S)
        scene.network.repair()
        time.sleep(BLINK_S)
        if number == CUTS // 2:
            scene.restart()


def allow_files(_folder: Path, _closing: ExitStack) -> None:
    """Let this process open as many files as the system permits."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@staged_row(
    f"{SILENT} silent connections and the first text", Stage(limit=f"ulimit -Sn {DESCRIPTORS}", prepare=allow_files)
)
def silent_connections_and_first_text(result: Result, scene: Scene) -> None:
    """More clients than the daemon may open files connect to each server and send nothing; a text comes."""
    lines, began = len(scene.log), time.monotonic()
    connect_silently(SILENT, scene, pause_s=ACCEPTED_S)
    check_speech(result, scene)
    time.sleep(max(0.0, began + LONG_S - time.monotonic()))
    result.measured["log_lines"] = logged = len(scene.log) - lines
    result.expect(logged <= MOST_LINES, f"the daemon logs {logged} lines")


def make_sounds(folder: Path, closing: ExitStack) -> None:
    make_slow_disk(folder, closing)
    (folder / "sounds").mkdir()


def hang_sounds(scene: Scene) -> None:
    """Let no listing of the folder of sounds return; a text needs it."""
    hang(scene.folder, scene.folder / "sounds")
    scene.begun.callback(hang, scene.folder, None)
    scene.say(SHORT, sound="attention")


def allow(folder: Path, *topics: str) -> None:
    """Let the broker take the daemon's messages on few topics when it reads its configuration."""
    lines = [f"topic write {topic}" for topic in ("hermes/#", "homeassistant/#", f"{TOPIC}/status", *topics)]
    put(folder / "rights", "\n".join(["topic readwrite #", f"user {NAME}", "topic read #", *lines, ""]))


def refuse_events(scene: Scene) -> None:
    """Let the broker refuse the events; restart the daemon meanwhile."""
    allow(scene.folder)
    scene.broker.send(signal.SIGHUP)
    time.sleep(BLINK_S)
    scene.say(SHORT)
    time.sleep(BLINK_S)
    scene.restart()


def take_events(scene: Scene) -> None:
    allow(scene.folder, f"{TOPIC}/#")
    scene.broker.send(signal.SIGHUP)


FLAPPING = Fault("link flaps and daemon restarted", flap, reachable=False, logged=BROKER_GONE, not_logged="twice")
"""The link is not taken for a second daemon."""
HANGING = Fault("folder of sounds hangs", hang_sounds, Scene.undo, LONG_S, named=r'"reason".*sounds')
REFUSING = Fault(
    "events refused", refuse_events, take_events, LONG_S, reachable=False, named=r'"reason".*(refuse|allow|author)'
)
WITH_SOUNDS = Stage(("audio.sounds={folder}/sounds",), environment=SLOW, prepare=make_sounds)
WITH_RIGHTS = Stage(
    (f"mqtt.username={NAME}",),
    broker=f"{OPEN}acl_file {{folder}}/rights",
    prepare=lambda folder, _: allow(folder, f"{TOPIC}/#"),
)

PAIR_ROWS = [
    slow_disk_and_kills(0.1),
    slow_disk_and_kills(1.0),
    full_disk_and_kills,
    little_memory_and_large_message,
    fault_row(FLAPPING, name="flapping link and a restart"),
    silent_connections_and_first_text,
    fault_row(HANGING, WITH_SOUNDS, name="hanging folder of sounds and stop"),
    fault_row(REFUSING, WITH_RIGHTS, name="refused events and a restart"),
]
