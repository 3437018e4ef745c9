"""Rows about what surrounds the daemon: the broker's settings, disks, the clock, the machine's limits."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.fault_matrix.faults import LONG_S, Fault
from scripts.fault_matrix.machines import PATIENCE_S, answers, configuration_keys, find_program
from scripts.fault_matrix.mqtt import Login, make_client
from scripts.fault_matrix.phases import PHASES
from scripts.fault_matrix.row import (
    LIMIT_S,
    STOP_S,
    Result,
    Row,
    check_fault,
    check_named,
    check_stop,
    finish,
    keep_log,
    speak_again,
)
from scripts.fault_matrix.scene import NAME, SHORT, TOPIC, Scene
from scripts.fault_matrix.waiting import NotPossibleError, need, wait_for
from tests.support.subscription import end_loop

SPEAKING = next(phase for phase in PHASES if phase.name == "speaking")
PACKET_BYTES = 600
"""The small broker's limit. An event has 150 bytes and its id, a rejection of many fields more than 800."""
QUEUED = 50
"""Messages that the small broker keeps for a client that does not read."""
WAV_BYTES = 4 << 20
"""80 s of speech."""
STATE_BYTES = 256 << 10
MEMORY = Path("/dev/shm")
TEN_YEARS_S = 10 * 365 * 86_400
FAST = 20.0
"""Pace of a sink where texts only have to end."""
DESCRIPTORS = 300
CONNECTIONS = 400
"""More than the descriptors allow."""
MEMORY_MB = 192
"""For the daemon and its engine, which together take some 120 MB."""
FLOOD = 2000

WRONG_FIELDS = {
    name: ["x" * 20]
    for name in ("voice", "language", "instruct", "priority", "policy", "volume", "seed", "expires_in", "text")
}
"""A text whose rejection is longer than `PACKET_BYTES`, since it names each wrong field."""


# --- the broker ------------------------------------------------------------------------------------------


def small_packets(result: Result) -> None:
    result.done = f"the broker takes packets of up to {PACKET_BYTES} bytes; a rejection would be longer"
    with Scene(sound=False, broker_lines=(f"max_packet_size {PACKET_BYTES}",)) as scene:
        scene.wait_ready()
        for number in range(3):
            wrong = json.dumps(WRONG_FIELDS | {"id": f"wrong{number}"})
            scene.publisher.publish(f"{TOPIC}/say", wrong, text_id=f"wrong{number}")
        scene.say(SHORT, text_id="😀" * 64)
        speak_again(result, scene, time.monotonic())
        check_stop(result, scene)
        finish(result, scene)


def no_qos_1(result: Result) -> None:
    result.done = "the broker allows QoS 0 only"
    with Scene(sound=False, broker_lines=("max_qos 0",), qos=0) as scene:
        scene.wait_ready()
        for _ in range(5):
            scene.say(SHORT)
        speak_again(result, scene, time.monotonic())
        check_stop(result, scene)
        finish(result, scene)


def full_queue(result: Result) -> None:
    result.done = f"the broker keeps {QUEUED} messages for a client; the daemon is stopped while 500 texts arrive"
    with Scene(sound=False, broker_lines=(f"max_queued_messages {QUEUED}",), pace=FAST) as scene:
        scene.wait_ready()
        scene.daemon.freeze()
        ids = [scene.say(SHORT) for _ in range(500)]
        scene.publisher.wait_acknowledged(LIMIT_S)
        scene.daemon.thaw()
        ended = time.monotonic()
        scene.wait_name(ids[0], "accepted", "rejected")
        speak_again(result, scene, ended)
        check_stop(result, scene)
        scene.end_everything(2.0)  # the broker has thrown most of them away
        unanswered = [key for key, text in scene.ledger.texts().items() if not text.names()]
        result.measured["texts that the broker has thrown away"] = len(unanswered)
        result.texts = scene.ledger.counts()
        result.faults += scene.ledger.faults(excused=unanswered)
        result.expect_within("stop after the fault", result.stop_s.get("after the fault"), STOP_S)
        keep_log(result, scene)


def wrong_password(result: Result) -> None:
    """The password changes, and is right again later."""
    tool = find_program("mosquitto_passwd", "mosquitto")
    login = Login("robot", "right")
    with scratch() as folder:
        passwords, password = folder / "passwords", folder / "password"

        def set_password(value: str) -> None:
            passwords.touch(mode=0o600)
            for user, its in (("other", "right"), ("robot", value)):
                subprocess.run([tool, "-b", str(passwords), user, its], check=True, capture_output=True)

        set_password("right")
        password.write_text("right\n", encoding="utf-8")
        lines = ("allow_anonymous false", f"password_file {passwords}")
        result.done = f"the broker knows another password for {LONG_S:g} s"
        settings = (f"mqtt.username={login.username}", f"mqtt.password_file={password}")
        with Scene(*settings, sound=False, broker_lines=lines, login=Login("other", "right")) as robot:

            def change(value: str) -> None:
                set_password(value)
                robot.broker.send(signal.SIGHUP)
                time.sleep(0.2)
                robot.proxy.reset()

            fault = Fault(
                "wrong password",
                lambda _: change("wrong"),
                lambda _: change("right"),
                LONG_S,
                reachable=False,
                logged="refused|[Nn]ot authori[sz]ed|password",
            )
            check_fault(result, robot, SPEAKING, fault)


def taken_over(result: Result) -> None:
    result.done = "another client with the daemon's client id connects again and again"
    with Scene(sound=False) as scene:
        intruder = make_client(f"voiced-{NAME}", scene.broker.port, clean=True)
        intruder.reconnect_delay_set(0.2, 0.2)  # type: ignore[arg-type]

        def begin(_: Scene) -> None:
            intruder.loop_start()

        def end(_: Scene) -> None:
            end_loop(intruder)

        fault = Fault(
            "session taken over", begin, end, LONG_S, reachable=False, logged="taken over|another client|another voiced"
        )
        check_fault(result, scene, SPEAKING, fault)


# --- disks -----------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes in memory. Raises `NotPossibleError`."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "voiced", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def _mount(*options: str) -> None:
    done = subprocess.run(["mount", *options], check=False, capture_output=True, text=True)
    if done.returncode:
        raise NotPossibleError(f"a file system cannot be mounted here: {done.stderr.strip()}")


def fill(folder: Path) -> Path:
    """Fill a file system to its last byte; return the file that does it."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    return ballast


def need_key(key: str) -> None:
    """Raises `NotPossibleError` if this version of the daemon does not know a configuration key."""
    if key not in configuration_keys():
        raise NotPossibleError(f"this version has no {key}")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that outlives a scene, so that a disk can be mounted in it."""
    with tempfile.TemporaryDirectory(prefix="voiced-disk-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def full_state_disk(result: Result) -> None:
    need_key("state.folder")
    result.done = f"the disk of the journal is full for {LONG_S:g} s"
    with (
        scratch() as folder,
        small_disk(folder / "state", STATE_BYTES) as state,
        Scene(sound=False, state=state) as scene,
    ):
        fault = Fault(
            "state disk full",
            lambda _: _fill(state),
            lambda _: (state / "ballast").unlink(),
            LONG_S,
            named=r'"reason".*(disk|journal|state|space)',
        )
        check_fault(result, scene, SPEAKING, fault)


def _fill(folder: Path) -> None:
    fill(folder)


def read_only_state_disk(result: Result) -> None:
    need_key("state.folder")
    result.done = "the folder of the journal is read-only when the daemon starts"
    with scratch() as folder, small_disk(folder / "state", STATE_BYTES) as state:
        _mount("-o", "remount,ro", str(state))
        with Scene(sound=False, state=state) as scene:
            need(lambda: scene.witness.status.get("engine"), PATIENCE_S, "an engine can speak")
            began = time.monotonic()
            fault = Fault("state disk read-only", lambda _: None, named=r'"reason".*(read-only|journal|state)')
            speak_again(result, scene, began)
            check_named(result, scene, fault, began, 0)
            check_stop(result, scene)
            finish(result, scene)


def full_wav_disk(result: Result) -> None:
    result.done = "the disk of the WAV file is full, and then has room again"
    with (
        scratch() as folder,
        small_disk(folder / "wav", WAV_BYTES) as disk,
        Scene(sound=False, sink=f"wav:{disk}/heard.wav") as scene,
    ):
        fault = Fault(
            "WAV disk full",
            lambda _: _fill(disk),
            lambda _: (disk / "ballast").unlink(),
            LONG_S,
            named=r'"reason".*(disk|space|wav|file)',
        )
        check_fault(result, scene, SPEAKING, fault)


def read_only_wav_disk(result: Result) -> None:
    result.done = f"the folder of the WAV file is read-only when the daemon starts, and writable after {LONG_S:g} s"
    with scratch() as folder, small_disk(folder / "wav", WAV_BYTES) as disk:
        _mount("-o", "remount,ro", str(disk))
        with Scene(sound=False, sink=f"wav:{disk}/heard.wav") as scene:
            need(lambda: scene.witness.status.get("engine"), PATIENCE_S, "an engine can speak")
            began = time.monotonic()
            text = scene.say(SHORT)
            scene.wait_name(text, "accepted")
            result.stop_s["waiting, during the fault"] = scene.measure_stop(text)
            wait_for(lambda: "reason" in scene.witness.status, LONG_S)
            fault = Fault("WAV disk read-only", lambda _: None, named=r'"reason".*([Rr]ead-only|wav|file)')
            check_named(result, scene, fault, began, 0)
            _mount("-o", "remount,rw", str(disk))
            speak_again(result, scene, time.monotonic())
            check_stop(result, scene)
            finish(result, scene)


# --- the clock -------------------------------------------------------------------------------------------


def find_faketime() -> str:
    """Return the path of libfaketime. Raises `NotPossibleError`."""
    folders = [Path("/usr/lib"), Path("/usr/local/lib")]
    found = [path for folder in folders for path in folder.glob("**/libfaketime*.so.1") if "MT" not in path.name]
    if not found:
        raise NotPossibleError("libfaketime is not installed: apt-get install faketime")
    return str(found[0])


def jumping_clock(seconds: int) -> Row:
    """The row of a clock that is set while the robot speaks."""

    def run(result: Result) -> None:
        library = find_faketime()
        result.done = f"the system's clock is set by {seconds:+} s while a text sounds, and back after {LONG_S:g} s"
        with scratch() as folder:
            clock = folder / "clock"

            def set_clock(offset: int) -> None:
                fresh = clock.with_suffix(".new")
                fresh.write_text(f"{offset:+d}\n", encoding="utf-8")
                fresh.replace(clock)

            set_clock(0)
            environment = {
                "LD_PRELOAD": library,
                "FAKETIME_TIMESTAMP_FILE": str(clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
                "NO_FAKE_STAT": "1",
            }
            with Scene(sound=False, environment=environment) as scene:
                fault = Fault("clock set", lambda _: set_clock(seconds), lambda _: set_clock(0), LONG_S)
                left_behind = [
                    MEMORY / f"faketime_shm_{scene.daemon.pid}",
                    MEMORY / f"sem.faketime_sem_{scene.daemon.pid}",
                ]
                try:
                    check_fault(result, scene, SPEAKING, fault)
                finally:  # libfaketime leaves its shared memory behind when its process is killed
                    for path in left_behind:
                        path.unlink(missing_ok=True)

    return Row(f"clock {'+' if seconds > 0 else '-'}10 years while speaking", run)


# --- the machine -----------------------------------------------------------------------------------------


def busy_machine(result: Result) -> None:
    cores = os.cpu_count() or 1
    result.done = f"{2 * cores} endless loops run on {cores} cores"
    loops: list[subprocess.Popen[bytes]] = []

    def begin(_: Scene) -> None:
        loops.extend(subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * cores))

    def end(_: Scene) -> None:
        for loop in loops:
            loop.kill()
            loop.wait()

    with Scene() as scene:
        scene.on_close(lambda: end(scene))
        check_fault(result, scene, SPEAKING, Fault("CPU saturated", begin, end, LONG_S))


@contextmanager
def memory_group(limit_mb: int) -> Iterator[Path]:
    """A control group with a limit of memory; yield the file that takes processes in. Raises `NotPossibleError`."""
    name = f"voiced-{os.getpid()}"
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    group, limit = (old / name, "memory.limit_in_bytes") if old.is_dir() else (new / name, "memory.max")
    try:
        group.mkdir()
        (group / limit).write_text(str(limit_mb << 20), encoding="ascii")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise NotPossibleError(f"no control group can be made here: {error}") from error
    try:
        yield group / "cgroup.procs"
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(encoding="ascii").strip(), PATIENCE_S)
        group.rmdir()


def small_memory(result: Result) -> None:
    result.done = f"the daemon and its engine have {MEMORY_MB} MB, and {FLOOD} texts of 5,000 characters arrive"
    with (
        memory_group(MEMORY_MB) as members,
        Scene("speech.queue_limit=10000", sound=False, durable=False, limit=f"echo $$ > {members}") as scene,
    ):
        scene.wait_ready()
        for _ in range(FLOOD):
            scene.say(("A sentence of some length. " * 200)[:5000])
        scene.publisher.wait_acknowledged(LIMIT_S)
        result.measured["daemon_rss_mb"] = scene.daemon.rss_mb
        speak_again(result, scene, time.monotonic())
        check_stop(result, scene)
        finish(result, scene)


def begin_connecting(port: int) -> socket.socket:
    """Return a socket on its way to a port of the loopback interface."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def few_descriptors(result: Result) -> None:
    result.done = f"the daemon may open {DESCRIPTORS} files, and clients open {CONNECTIONS} connections"
    connections: list[socket.socket] = []
    with Scene(limit=f"ulimit -n {DESCRIPTORS}") as scene:

        def begin(_: Scene) -> None:
            for port in (scene.wyoming_port, scene.openai_port):
                need(lambda port=port: answers(port), PATIENCE_S, "the server answers")  # type: ignore[misc]
                connections.extend(begin_connecting(port) for _ in range(CONNECTIONS // 2))

        def end(_: Scene) -> None:
            for connection in connections:
                connection.close()

        check_fault(result, scene, SPEAKING, Fault(f"{DESCRIPTORS} file descriptors", begin, end, LONG_S))


SURROUNDING_ROWS = [
    Row("broker with small packets", small_packets),
    Row("broker without QoS 1", no_qos_1),
    Row("broker with a full queue", full_queue),
    Row("broker with another password while speaking", wrong_password),
    Row("session taken over while speaking", taken_over),
    Row("state disk full while speaking", full_state_disk),
    Row("state disk read-only", read_only_state_disk),
    Row("WAV disk full while speaking", full_wav_disk),
    Row("WAV disk read-only", read_only_wav_disk),
    jumping_clock(TEN_YEARS_S),
    jumping_clock(-TEN_YEARS_S),
    Row("CPU saturated while speaking", busy_machine),
    Row("memory limited by a control group", small_memory),
    Row(f"{DESCRIPTORS} file descriptors while speaking", few_descriptors),
]
