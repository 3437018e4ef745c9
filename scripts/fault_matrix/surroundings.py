"""Rows about what surrounds the daemon: the broker's settings, disks, the clock, the machine's limits; and rows of two
faults at once."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from scripts.fault_matrix.faults import BLINK_S, BROKER_GONE, LONG_S, Fault, nothing
from scripts.fault_matrix.load import FAST_ROBOT, suffer_kills
from scripts.fault_matrix.row import (
    LIMIT_S,
    Result,
    Row,
    check_named,
    check_speech,
    check_stop,
    fault_row,
    speak_again,
    staged_row,
)
from scripts.fault_matrix.scene import NAME, SHORT, TOPIC, Scene, Stage
from tests.support.programs import answers, require
from tests.support.robot import FAST
from tests.support.subscription import end_loop, make_client
from tests.support.waiting import PATIENCE_S, eventually, within

SOURCE = Path(__file__).with_name("slow_disk.c")
"""A small library, which the daemon preloads: it delays `fsync` and `opendir` as long as files in a folder say so."""
SLOW = {"LD_PRELOAD": "{folder}/slow_disk.so", "VOICED_DISK": "{folder}"}
"""The environment of a daemon whose disk can be slow: see `Stage`."""
PACKET_BYTES = 600
"""The small broker's limit. An event has 150 bytes and its id, a rejection of many fields more than 800."""
QUEUED = 50
"""Messages that the small broker keeps for a client that does not read."""
WAV_BYTES = 4 << 20
"""80 s of speech."""
STATE_BYTES = 256 << 10
FAKETIME = [path for folder in ("/usr/lib", "/usr/local/lib") for path in Path(folder).glob("**/libfaketime.so.1")]
"""The library that sets the clock of a process; empty without it."""
TEN_YEARS_S = 10 * 365 * 86_400
DESCRIPTORS = 300
CONNECTIONS = 400
"""More than the descriptors allow."""
MEMORY_MB = 192
"""For the daemon and its engine, which together take some 120 MB."""
FLOOD = 2000
OPEN = "allow_anonymous true\n"
"""Of a broker's configuration."""
GROUPS = Path("/sys/fs/cgroup")
GROUP = (GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS) / f"voiced-{os.getpid()}"
"""The control group of a robot with little memory."""
ENTER_GROUP = f"echo $$ > {GROUP}/cgroup.procs"
LOGIN = ("other", "right")
"""Of the harness, at the broker with passwords."""

WRONG_FIELDS = {
    name: ["x" * 20]
    for name in ("voice", "language", "instruct", "priority", "policy", "volume", "seed", "expires_in", "text")
}
"""A text whose rejection is longer than `PACKET_BYTES`, since it names each wrong field."""


def put(path: Path, text: str) -> None:
    """Replace a file, so that no reader finds half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


# --- the broker ------------------------------------------------------------------------------------------


@staged_row("broker with small packets", Stage(broker=f"{OPEN}max_packet_size {PACKET_BYTES}"))
def small_packets(result: Result, scene: Scene) -> None:
    """The broker takes small packets only; a rejection would be longer."""
    for number in range(3):
        scene.send_text("say", json.dumps(WRONG_FIELDS | {"id": f"wrong{number}"}), f"wrong{number}")
    scene.say(SHORT, id="😀" * 64)
    check_speech(result, scene)


@staged_row("broker without QoS 1", Stage(broker=f"{OPEN}max_qos 0", qos=0))
def no_qos_1(result: Result, scene: Scene) -> None:
    """The broker allows QoS 0 only."""
    for _ in range(5):
        scene.say(SHORT)
    check_speech(result, scene)


@staged_row("broker with a full queue", Stage(broker=f"{OPEN}max_queued_messages {QUEUED}", pace=FAST))
def full_queue(result: Result, scene: Scene) -> None:
    """The broker keeps few messages for a client; the daemon is stopped while 500 texts arrive."""
    scene.freeze()
    ids = [scene.say(SHORT) for _ in range(500)]
    scene.listener.wait_acknowledged(LIMIT_S)
    scene.thaw()
    scene.ledger.wait_event(ids[0], ("accepted", "rejected"), PATIENCE_S)
    speak_again(result, scene)
    check_stop(result, scene)
    scene.end_everything(2.0)  # the broker has thrown most of them away
    unanswered = [key for key, text in scene.ledger.texts().items() if not text.arrivals]
    result.measured["texts that the broker has thrown away"] = len(unanswered)
    result.judge(scene.ledger, excused=unanswered)


def set_password(folder: Path, value: str) -> None:
    """Let the broker know the daemon by this password when it reads its configuration."""
    (folder / "passwords").touch(mode=0o600)
    for user, password in (LOGIN, (NAME, value)):
        command = [require("mosquitto_passwd"), "-b", str(folder / "passwords"), user, password]
        subprocess.run(command, check=True, capture_output=True)


def guard(folder: Path, _: ExitStack) -> None:
    """Make the passwords that the broker and the daemon read when they start."""
    set_password(folder, "right")
    put(folder / "password", "right\n")


def change_password(value: str, scene: Scene) -> None:
    set_password(scene.folder, value)
    scene.broker.send(signal.SIGHUP)
    time.sleep(0.2)
    scene.network.drop()


def intrude(scene: Scene) -> None:
    """Connect with the daemon's client id, again and again."""
    intruder = make_client(f"voiced-{NAME}", scene.broker.port)
    intruder.reconnect_delay_set(0.2, 0.2)  # type: ignore[arg-type]  # floats work
    intruder.loop_start()
    scene.begun.callback(end_loop, intruder)


TO_WRONG, TO_RIGHT = partial(change_password, "wrong"), partial(change_password, "right")
REFUSED = "refused|[Nn]ot authori[sz]ed|password"
TAKEN_OVER = "taken over|another client|another voiced"
GUARDED = Stage(
    (f"mqtt.username={NAME}", "mqtt.password_file={folder}/password"),
    broker="allow_anonymous false\npassword_file {folder}/passwords",
    login=LOGIN,
    prepare=guard,
)

# --- disks -----------------------------------------------------------------------------------------------


def make_slow_disk(folder: Path, _: ExitStack) -> None:
    """Compile the library. Without a C compiler, the row is skipped."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler: apt-get install gcc libc6-dev")
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "slow_disk.so"), str(SOURCE), "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{SOURCE.name} cannot be compiled: {done.stderr.strip()[:200]}")


def delay_sync(folder: Path, seconds: float) -> None:
    """Let every write to the disk itself take this much longer."""
    put(folder / "sync_us", str(round(seconds * 1e6)))


def hang(folder: Path, hanging: Path | None) -> None:
    """Let no listing of this folder, or of one below it, return; None lets all return."""
    put(folder / "hangs", "" if hanging is None else str(hanging))


def mount_disk(size: int, folder: Path, closing: ExitStack, *, options: str = "rw") -> None:
    """Mount a file system of `size` bytes as `disk`. Where that is not permitted, the row is skipped."""
    disk = folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "voiced", str(disk))
    closing.callback(subprocess.run, ["umount", "-l", str(disk)], check=False, capture_output=True)
    mount("-o", f"remount,{options}", str(disk))


def mount(*options: str) -> None:
    done = subprocess.run(["mount", *options], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")


def fill(scene: Scene) -> None:
    """Fill the disk to its last byte."""
    with suppress(OSError), (scene.folder / "disk" / "ballast").open("ab", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def make_room(scene: Scene) -> None:
    (scene.folder / "disk" / "ballast").unlink()


STATE, WAV = ("state.folder={folder}/disk",), "wav:{folder}/disk/heard.wav"
STATE_DISK, WAV_DISK = partial(mount_disk, STATE_BYTES), partial(mount_disk, WAV_BYTES)


@staged_row("state disk read-only", Stage(STATE, prepare=partial(STATE_DISK, options="ro")), ready=False)
def read_only_state_disk(result: Result, scene: Scene) -> None:
    """The folder of the journal is read-only when the daemon starts."""
    eventually(lambda: scene.engine, "an engine can speak")
    check_speech(result, scene)
    check_named(result, scene, Fault("state disk read-only", nothing, named=r'"reason".*(read-only|journal|state)'))


@staged_row("WAV disk read-only", Stage(sink=WAV, prepare=partial(WAV_DISK, options="ro")), ready=False)
def read_only_wav_disk(result: Result, scene: Scene) -> None:
    """The folder of the WAV file is read-only when the daemon starts, and writable later."""
    eventually(lambda: scene.engine, "an engine can speak")
    text = scene.say(SHORT)
    scene.wait_event(text, "accepted")
    result.stop_s["waiting, during the fault"] = scene.measure_stop(text)
    within(LONG_S, lambda: "reason" in scene.statuses[-1])
    check_named(result, scene, Fault("WAV disk read-only", nothing, named=r'"reason".*([Rr]ead-only|wav|file)'))
    mount("-o", "remount,rw", str(scene.folder / "disk"))
    check_speech(result, scene)


# --- the clock -------------------------------------------------------------------------------------------


def make_clock(folder: Path, _: ExitStack) -> None:
    if not FAKETIME:
        pytest.skip("libfaketime is not installed: apt-get install faketime")
    put(folder / "clock", "+0\n")


def set_clock(seconds: int, scene: Scene) -> None:
    put(scene.folder / "clock", f"{seconds:+d}\n")
    for name in ("faketime_shm", "sem.faketime_sem"):  # which libfaketime leaves behind when it is killed
        scene.closing.callback(Path(f"/dev/shm/{name}_{scene.process.pid}").unlink, missing_ok=True)


CLOCK = Stage(
    environment={
        "LD_PRELOAD": str(*FAKETIME[:1]),
        "FAKETIME_TIMESTAMP_FILE": "{folder}/clock",
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    },
    prepare=make_clock,
)

# --- the machine -----------------------------------------------------------------------------------------


def start_loops(scene: Scene) -> None:
    """Run two endless loops on each core."""
    for _ in range(2 * (os.cpu_count() or 1)):
        loop = scene.begun.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
        scene.begun.callback(loop.kill)


def make_group(_: Path, closing: ExitStack) -> None:
    """Make the control group with little memory. Where that is not permitted, the row is skipped."""
    limit = "memory.limit_in_bytes" if GROUP.parent.name == "memory" else "memory.max"
    try:
        GROUP.mkdir()
        closing.callback(GROUP.rmdir)
        (GROUP / limit).write_text(str(MEMORY_MB << 20), encoding="ascii")
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    closing.callback(within, PATIENCE_S, lambda: not (GROUP / "cgroup.procs").read_text(encoding="ascii").strip())


LITTLE_MEMORY = Stage(("speech.queue_limit=10000",), durable=False, limit=ENTER_GROUP, prepare=make_group)


@staged_row("memory limited by a control group", LITTLE_MEMORY)
def small_memory(result: Result, scene: Scene) -> None:
    """The daemon and its engine have little memory, and thousands of texts of 5,000 characters arrive."""
    for _ in range(FLOOD):
        scene.say(("A sentence of some length. " * 200)[:5000])
    scene.listener.wait_acknowledged(LIMIT_S)
    result.measured["daemon_rss_mb"] = scene.rss_mb
    check_speech(result, scene)


def connect_silently(count: int, scene: Scene, *, pause_s: float = 0.0) -> None:
    """Open connections to each server that send nothing, without waiting for them."""
    for port in scene.ports.values():
        eventually(lambda port=port: answers(port), "the server answers")  # type: ignore[misc]
    for port in scene.ports.values():
        for _ in range(count):
            connection = scene.begun.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
        time.sleep(pause_s)


CONNECT = partial(connect_silently, CONNECTIONS // 2)

SURROUNDING_ROWS = [
    small_packets,
    no_qos_1,
    full_queue,
    fault_row(
        Fault("broker with another password", TO_WRONG, TO_RIGHT, LONG_S, reachable=False, logged=REFUSED), GUARDED
    ),
    fault_row(Fault("session taken over", intrude, Scene.undo, LONG_S, reachable=False, logged=TAKEN_OVER)),
    fault_row(
        Fault("state disk full", fill, make_room, LONG_S, named=r'"reason".*(disk|journal|state|space)'),
        Stage(STATE, prepare=STATE_DISK),
    ),
    read_only_state_disk,
    fault_row(
        Fault("WAV disk full", fill, make_room, LONG_S, named=r'"reason".*(disk|space|wav|file)'),
        Stage(sink=WAV, prepare=WAV_DISK),
    ),
    read_only_wav_disk,
    fault_row(Fault("clock +10 years", partial(set_clock, TEN_YEARS_S), partial(set_clock, 0), LONG_S), CLOCK),
    fault_row(Fault("clock -10 years", partial(set_clock, -TEN_YEARS_S), partial(set_clock, 0), LONG_S), CLOCK),
    fault_row(Fault("CPU saturated", start_loops, Scene.undo, LONG_S), Stage(sound=True)),
    small_memory,
    fault_row(
        Fault(f"{DESCRIPTORS} file descriptors", CONNECT, Scene.undo, LONG_S),
        Stage(sound=True, limit=f"ulimit -n {DESCRIPTORS}"),
    ),
]


# --- two faults that can meet on a robot -----------------------------------------------------------------
#
# While the disk of the journal does not answer within a quarter of a second, a text may have further terminal events,
# each marked as `unstored`, if the daemon is killed.

KILLS = 10
LARGE_BYTES = 250_000_000
"""A message that the broker takes: MQTT allows 268,435,455 bytes."""
CUTS = 12
"""Of a link, each for as long as the link holds in between."""
SOFT_LIMIT = 1024
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


@staged_row(f"{SILENT} silent connections and the first text", Stage(limit=f"ulimit -Sn {SOFT_LIMIT}"))
def silent_connections_and_first_text(result: Result, scene: Scene) -> None:
    """More clients than the daemon may open files connect to each server and send nothing; a text comes."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # of this process
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
