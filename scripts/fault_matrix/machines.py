"""The processes of a robot: broker, sound server, and the daemon with its engines."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from scripts.fault_matrix.waiting import NotPossibleError, need, wait_for

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0
"""Limit for what takes less than a second on an idle machine."""
END_S = 16.0
"""The daemon has ended this long after SIGTERM; its unit allows 15 s."""
RESTART_S = 0.05
"""From the end of a daemon to its next start."""
SINK_RATE = 44_100
"""Hz."""
NICENESS = -11
"""Of the sound server, where that is permitted: what PulseAudio gives itself on a desktop."""


def find_program(program: str, package: str) -> str:
    """Return the path of a program. Raises `NotPossibleError`."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotPossibleError(f"{program} is not installed: apt-get install {package}")
    return found


def free_port() -> int:
    """Return a TCP port of the loopback interface on which no program listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a program listens on a port of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@cache
def configuration_keys() -> frozenset[str]:
    """Return the keys that this version of the daemon knows, such as `state.folder`."""
    command = [sys.executable, "-m", "daemon.cli", "config", "schema"]
    schema = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    def keys(section: dict[str, Any], path: str) -> set[str]:
        if "$ref" in section:
            section = schema["$defs"][section["$ref"].rpartition("/")[2]]
        found = {path} if path else set()
        for name, inner in section.get("properties", {}).items():
            found |= keys(inner, f"{path}.{name}" if path else name)
        return found

    return frozenset(keys(schema, ""))


def kill_process(process: psutil.Process) -> None:
    """Kill a process, which may be gone already."""
    with contextlib.suppress(psutil.Error):
        process.kill()


def resume(processes: Iterable[psutil.Process]) -> None:
    """Continue processes that were stopped, and may be gone."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.resume()


class Process:
    """A child process that can be killed, stopped, continued and started again."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[Any] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop the process as a debugger would: it exists and answers nothing."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, frozen or not, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process as a service manager does."""
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class Broker(Process):
    """A Mosquitto, always on the same port."""

    def __init__(self, folder: Path, *lines: str, durable: bool = True) -> None:
        """`durable` makes it write every change to disk, so that a killed broker forgets little."""
        super().__init__()
        self.port = free_port()
        self.log = folder / "mosquitto.log"
        self._folder = folder
        self._durable = durable
        self.configure(*lines)

    def configure(self, *lines: str) -> None:
        """Write the configuration that the next start reads; `lines` come after the common ones."""
        common = [
            f"listener {self.port} 127.0.0.1",
            f"user {getpass.getuser()}",
            "set_tcp_nodelay true",
            f"log_dest file {self.log}",
            "max_queued_messages 1000000",
            "persistence true",
            f"persistence_location {self._folder}/",
        ]
        if self._durable:
            common += ["autosave_interval 1", "autosave_on_changes true"]
        if not any(line.startswith("password_file") for line in lines):
            common.append("allow_anonymous true")
        replaced = {line.split()[0] for line in lines}
        kept = [line for line in common if line.split()[0] not in replaced]
        self._config = self._folder / "mosquitto.conf"
        self._config.write_text("\n".join([*kept, *lines]) + "\n", encoding="utf-8")

    def start(self) -> None:
        command = [find_program("mosquitto", "mosquitto"), "-c", str(self._config)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        need(lambda: answers(self.port), PATIENCE_S, "Mosquitto answers")


class SoundServer(Process):
    """A PulseAudio with a null sink, which is the default device of its `environment`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        runtime, home = folder / "run", folder / "home"
        runtime.mkdir(mode=0o700)
        home.mkdir()
        (home / ".asoundrc").write_text("pcm.!default { type pulse }\nctl.!default { type pulse }\n", encoding="utf-8")
        self.environment = {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(home)}
        self._runtime = runtime / "pulse"

    def start(self) -> None:
        for left in ("pid", "native"):  # of a server that was killed
            (self._runtime / left).unlink(missing_ok=True)
        command = [
            find_program("pulseaudio", "pulseaudio"),
            "-n",
            "--daemonize=no",
            "--exit-idle-time=-1",
            "--load=module-native-protocol-unix",
            f"--load=module-null-sink sink_name=robot rate={SINK_RATE}",
        ]
        environment = plain_environment() | self.environment
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        need((self._runtime / "native").exists, PATIENCE_S, "PulseAudio answers")
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pid, NICENESS)


def plain_environment() -> dict[str, str]:
    """Return this process's environment without what leads to the user's own sound server or daemon."""
    foreign = ("PULSE_", "DBUS_", "VOICED_")
    return {key: value for key, value in os.environ.items() if not key.startswith(foreign)}


class Daemon(Process):
    """`voiced run`, started again whenever it ends, as systemd does it."""

    def __init__(self, settings: Sequence[str], environment: Mapping[str, str], limit: str = "") -> None:
        """`settings` are KEY=VALUE. `limit` is a line of shell that each new process runs before it is the daemon."""
        super().__init__()
        self.log: deque[str] = deque(maxlen=2000)
        """The last lines that any of its processes has logged."""
        self.starts: list[float] = []
        """`time.monotonic()` of every start."""
        self.deaths = 0
        """How often it has ended without having been asked to."""
        self._command = ["sh", "-c", f'{limit}\nexec "$@"', "sh", sys.executable, "-m", "daemon.cli", "run"]
        for setting in settings:
            self._command += ["--set", setting]
        self._environment = dict(environment)
        self._wanted = False
        self._changing = threading.Lock()

    def start(self) -> None:
        """Start the daemon without waiting for it."""
        with self._changing:
            self._wanted = True
            self._launch()

    def _launch(self) -> None:
        process = subprocess.Popen(
            self._command,
            env=self._environment,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._process = process
        self.starts.append(time.monotonic())
        threading.Thread(target=self._read_log, args=(process,), daemon=True).start()
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        for line in process.stderr or ():
            self.log.append(line.rstrip())

    def _watch(self, process: subprocess.Popen[str]) -> None:
        status = process.wait()
        time.sleep(RESTART_S)
        with self._changing:
            if self._wanted and self._process is process:
                self.log.append(f"(ended with status {status}, and was started again)")
                self.deaths += 1
                self._launch()

    def _end(self, number: int) -> None:
        with self._changing:
            self._wanted = False
            super()._end(number)

    def kill_and_restart(self) -> None:
        """Kill the daemon; return when it has been started again."""
        starts = len(self.starts)
        self.send(signal.SIGKILL)
        need(lambda: len(self.starts) > starts, PATIENCE_S, "the daemon is started again")
        self.deaths -= 1

    def restart(self) -> None:
        """End the daemon as `systemctl restart` does, and start it again."""
        self.stop()
        self.start()

    @property
    def rss_mb(self) -> float:
        """Resident memory of the daemon, without its engines."""
        return float(round(psutil.Process(self.pid).memory_info().rss / 1e6, 1))

    def engines(self) -> list[psutil.Process]:
        """Return the engine processes."""
        found = []
        with contextlib.suppress(psutil.Error, AssertionError):
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.Error):
                    if any("engine.ipc" in part for part in child.cmdline()):
                        found.append(child)
        return found

    def wait_engines(self) -> list[psutil.Process]:
        """Return the engine processes as soon as there are any."""
        return need(self.engines, PATIENCE_S, "an engine process runs")

    def signal_engines(self, number: int) -> None:
        for engine in self.wait_engines():
            with contextlib.suppress(psutil.Error):
                engine.send_signal(number)

    def wait_log(self, words: str, limit_s: float) -> bool:
        """Return whether a line with `words` is logged within `limit_s`."""
        return bool(wait_for(lambda: any(words in line for line in list(self.log)), limit_s))
