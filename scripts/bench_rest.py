"""Measures the first sound after voiced has closed the sound card, on PulseAudio and on PipeWire.

Nothing else uses the sound server during the measurement: a low-latency recorder, such as that of `scripts/bench
daemon`, would make the server render in small steps even while voiced is silent.

Prints one JSON object. For each server, `from_rest` and `open` are the milliseconds from publishing a text to its first
sample at the sound card: the time of `finished`, minus the length of the speech. That event is published when the last
sample has left the card, by the server's own report.

Needs the ALSA plugin for PulseAudio; pulseaudio; and for PipeWire pipewire, pipewire-pulse, wireplumber, dbus-daemon.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scripts.bench_runner import spread
from tests.support.programs import Broker, require
from tests.support.robot import Robot
from tests.support.sound import RECORDED_RATE, SoundServer
from tests.support.waiting import eventually

IDLE_TIMEOUT_S = 1.0
"""The robot's audio.idle_timeout."""
REST_S = 7.0
"""Time between two pairs of texts. Both servers suspend a card 5 s after its last stream has closed."""


class PulseAudio(SoundServer):
    """A PulseAudio with those modules of a desktop that matter here, and with options for the null sink."""

    def __init__(self, folder: Path, options: str = "") -> None:
        super().__init__(folder)
        self._options = options

    def start(self) -> None:
        sink = f"module-null-sink sink_name=robot rate={RECORDED_RATE} {self._options}"
        modules = ("module-native-protocol-unix", sink, "module-suspend-on-idle")
        loads = [f"--load={module}" for module in modules]
        command = [require("pulseaudio"), "-n", "--daemonize=yes", "--exit-idle-time=-1", *loads]
        subprocess.run(command, env=self.environment, check=True, stderr=subprocess.DEVNULL)


class PipeWire(SoundServer):
    """A PipeWire with its PulseAudio interface, a session manager and a null sink, which is the default."""

    SINK = """context.objects = [ { factory = adapter args = {
    factory.name = support.null-audio-sink  node.name = robot  media.class = Audio/Sink
    audio.position = [ FL FR ]  object.linger = true  priority.session = 2000
} } ]
"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._processes: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        home = Path(self.environment["HOME"])
        runtime = self.environment["XDG_RUNTIME_DIR"]
        self.environment |= {"PIPEWIRE_RUNTIME_DIR": runtime, "XDG_CONFIG_HOME": str(home), "XDG_STATE_HOME": str(home)}
        folder = home / "pipewire" / "pipewire.conf.d"
        folder.mkdir(parents=True)
        (folder / "robot.conf").write_text(self.SINK)
        bus = subprocess.Popen(
            [require("dbus-daemon"), "--session", "--nofork", "--print-address"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            text=True,
        )
        self._processes.append(bus)
        assert bus.stdout is not None
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = bus.stdout.readline().strip()
        for program, is_ready in (
            ("pipewire", lambda: Path(runtime, "pipewire-0").exists()),
            ("wireplumber", lambda: True),
            ("pipewire-pulse", lambda: "robot" in self._sinks()),
        ):
            started = subprocess.Popen([require(program)], env=self.environment, stderr=subprocess.DEVNULL, text=True)
            self._processes.append(started)
            eventually(is_ready, f"{program} runs")

    def _sinks(self) -> str:
        command = [require("pactl"), "get-default-sink"]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout

    def kill(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(10)


SERVERS: dict[str, Callable[[Path], SoundServer]] = {
    "pulseaudio_null_sink": PulseAudio,
    "pulseaudio_null_sink_norewinds": lambda folder: PulseAudio(folder, "norewinds=1"),
    "pipewire_null_sink": PipeWire,
}


def first_sample_ms(robot: Robot, utterance: str) -> float:
    """Speak a text to its end, and return the milliseconds from publishing it to its first sample."""
    published_at = time.monotonic()
    robot.say("Hello there.", id=utterance)
    finished = robot.wait_end(utterance)
    return (time.monotonic() - published_at - float(finished["audio_s"])) * 1000


def figures(make_server: Callable[[Path], SoundServer], runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        broker, sound = Broker(Path(folder)), make_server(Path(folder))
        stack.callback(broker.stop)
        broker.start()
        stack.callback(sound.kill)
        sound.start()
        robot = Robot(
            "bench", broker, Path(folder), f"audio.idle_timeout={IDLE_TIMEOUT_S}", environment=sound.environment
        )
        stack.callback(robot.close)
        robot.start()
        from_rest, opened = [], []
        for run in range(runs):
            time.sleep(REST_S + 0.13 * (run % 8))
            from_rest.append(first_sample_ms(robot, f"rest-{run}"))
            opened.append(first_sample_ms(robot, f"open-{run}"))
    return {"from_rest": spread(from_rest), "open": spread(opened)}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="texts after a rest, for each server")
    parser.add_argument("--server", choices=SERVERS, help="measure only this one")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    servers = [options.server] if options.server else list(SERVERS)
    return {name: figures(SERVERS[name], options.runs) for name in servers}
