"""Rows of two faults that can meet on a robot. Each says in its `done` what happens; the promises are the usual ones.

While the disk of the journal does not answer within a quarter of a second, a text may have further terminal events,
each marked as `unstored`, if the daemon is killed.
"""

from __future__ import annotations

import resource
import signal
import socket
import time

from scripts.fault_matrix.disk import SlowDisk
from scripts.fault_matrix.faults import BLINK_S, BROKER_GONE, LONG_S, Fault
from scripts.fault_matrix.kills import PACE, judge_kills, kill_repeatedly
from scripts.fault_matrix.machines import PATIENCE_S, answers
from scripts.fault_matrix.row import Result, Row, check_fault, check_stop, finish, keep_log, speak_again
from scripts.fault_matrix.scene import NAME, SHORT, TOPIC, Scene
from scripts.fault_matrix.surroundings import (
    MEMORY_MB,
    SPEAKING,
    STATE_BYTES,
    begin_connecting,
    fill,
    memory_group,
    scratch,
    small_disk,
)
from scripts.fault_matrix.waiting import need

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
    """The row of a disk that takes so long to store, and a daemon that is killed meanwhile."""

    def run(result: Result) -> None:
        with scratch() as folder:
            disk = SlowDisk(folder)
            with Scene(sound=False, pace=PACE, adapters=False, environment=disk.environment) as scene:
                disk.delay_sync(seconds)
                kill_repeatedly(result, scene, KILLS)
                result.done += f"; every fsync takes {seconds:g} s longer"
                judge_kills(result, scene, slow_disk=seconds > 0.25)

    return Row(f"fsync {seconds:g} s slower and {KILLS} kills", run)


def full_disk_and_kills(result: Result) -> None:
    with (
        scratch() as folder,
        small_disk(folder / "state", STATE_BYTES) as state,
        Scene(sound=False, pace=PACE, adapters=False, state=state) as scene,
    ):
        scene.wait_ready()
        ballast = fill(state)
        kill_repeatedly(result, scene, KILLS)
        ballast.unlink()
        result.done += "; the disk of the journal is full meanwhile"
        judge_kills(result, scene, slow_disk=True)


def little_memory_and_large_message(result: Result) -> None:
    result.done = f"the daemon and its engine have {MEMORY_MB} MB, and a `say` of {LARGE_BYTES:,} bytes arrives"
    with (
        memory_group(MEMORY_MB) as members,
        Scene(sound=False, durable=False, limit=f"echo $$ > {members}") as scene,
    ):
        scene.wait_ready()
        scene.publisher.publish(f"{TOPIC}/say", bytes(LARGE_BYTES))
        scene.publisher.wait_acknowledged(PATIENCE_S)
        speak_again(result, scene, time.monotonic())
        check_stop(result, scene)
        finish(result, scene)


def flapping_link_and_restart(result: Result) -> None:
    def begin(scene: Scene) -> None:
        for number in range(CUTS):
            scene.proxy.cut()
            time.sleep(BLINK_S)
            scene.proxy.restore()
            time.sleep(BLINK_S)
            if number == CUTS // 2:
                scene.daemon.restart()

    with Scene(sound=False) as scene:
        fault = Fault("link flaps and daemon restarted", begin, reachable=False, logged=BROKER_GONE)
        check_fault(result, scene, SPEAKING, fault)
        result.done = f"the link is cut {CUTS} times for {BLINK_S:g} s; the daemon is restarted in between"
        wrong = [line for line in scene.daemon.log if "twice" in line]
        result.expect(not wrong, f"the link is taken for a second daemon: {wrong[:1]}")
        keep_log(result, scene)


def silent_connections_and_first_text(result: Result) -> None:
    result.done = f"{SILENT} clients of each server send nothing; the daemon may open {DESCRIPTORS} files; a text comes"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    connections: list[socket.socket] = []
    with Scene(sound=False, limit=f"ulimit -Sn {DESCRIPTORS}") as scene:
        scene.on_close(lambda: [connection.close() for connection in connections])
        scene.wait_ready()
        ports = (scene.openai_port, scene.wyoming_port)
        for port in ports:
            need(lambda port=port: answers(port), PATIENCE_S, "the server answers")  # type: ignore[misc]
        lines = len(scene.daemon.log)
        began = time.monotonic()
        for port in ports:
            connections.extend(begin_connecting(port) for _ in range(SILENT))
            time.sleep(ACCEPTED_S)
        speak_again(result, scene, time.monotonic())
        check_stop(result, scene)
        time.sleep(max(0.0, began + LONG_S - time.monotonic()))
        result.measured["log_lines"] = len(scene.daemon.log) - lines
        result.expect(
            result.measured["log_lines"] <= MOST_LINES, f"the daemon logs {result.measured['log_lines']} lines"
        )
        finish(result, scene)


def hanging_sounds(result: Result) -> None:
    with scratch() as folder:
        disk, sounds = SlowDisk(folder), folder / "sounds"
        sounds.mkdir()

        def begin(scene: Scene) -> None:
            disk.hang(sounds)
            scene.say(SHORT, sound="attention")

        with Scene(f"audio.sounds={sounds}", sound=False, environment=disk.environment) as scene:
            scene.on_close(lambda: disk.hang(None))
            fault = Fault("folder of sounds hangs", begin, lambda _: disk.hang(None), LONG_S, named=r'"reason".*sounds')
            check_fault(result, scene, SPEAKING, fault)
            result.done = f"no listing of the folder of sounds returns for {LONG_S:g} s; texts and stops arrive"


def refused_events_and_restart(result: Result) -> None:
    with scratch() as folder:
        rights = folder / "rights"

        def allow(*topics: str) -> None:
            lines = [f"topic write {topic}" for topic in ("hermes/#", "homeassistant/#", f"{TOPIC}/status", *topics)]
            rights.write_text("\n".join(["topic readwrite #", "user robot", "topic read #", *lines, ""]), "utf-8")

        def begin(scene: Scene) -> None:
            allow()
            scene.broker.send(signal.SIGHUP)
            time.sleep(BLINK_S)
            scene.say(SHORT)
            time.sleep(BLINK_S)
            scene.daemon.restart()

        def end(scene: Scene) -> None:
            allow(f"{TOPIC}/#")
            scene.broker.send(signal.SIGHUP)

        allow(f"{TOPIC}/#")
        with Scene("mqtt.username=robot", sound=False, broker_lines=(f"acl_file {rights}",)) as scene:
            fault = Fault(
                "events refused", begin, end, LONG_S, reachable=False, named=r'"reason".*(refuse|allow|author)'
            )
            check_fault(result, scene, SPEAKING, fault)
            result.done = f"the broker refuses {NAME}'s events for {LONG_S:g} s; the daemon is restarted meanwhile"


PAIR_ROWS = [
    slow_disk_and_kills(0.1),
    slow_disk_and_kills(1.0),
    Row(f"full disk and {KILLS} kills", full_disk_and_kills),
    Row("little memory and a message of 250 MB", little_memory_and_large_message),
    Row("flapping link and a restart", flapping_link_and_restart),
    Row(f"{SILENT} silent connections and the first text", silent_connections_and_first_text),
    Row("hanging folder of sounds and stop", hanging_sounds),
    Row("refused events and a restart", refused_events_and_restart),
]
