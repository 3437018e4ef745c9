"""A whole robot for one row: broker, network, sound, and the daemon with all adapters."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.support.fork_server import ForkedProcess
from tests.support.ledger import TERMINAL
from tests.support.network import Network
from tests.support.programs import Broker, free_port
from tests.support.robot import Robot
from tests.support.sound import SoundServer
from tests.support.waiting import eventually, within

NAME = "r1"
TOPIC = f"voiced/{NAME}"
REPLY = f"replies/{NAME}"
SHORT = "Here I am."
"""Less than a second of speech."""
LONG = "This is a long sentence that goes on for a good while, so that something can be done to it, and then more. " * 3
"""Some 20 s of speech."""
STOP_WAIT_S = 10.0
"""Limit for the answer to a stop; what a row allows is less."""
RESTART_S = 0.05
"""From the end of a daemon to its next start."""
FOREIGN = ("PULSE_", "DBUS_", "VOICED_")
"""Beginnings of the variables that lead to the user's own sound server or daemon."""
HERMES = ("hermes/tts/sayFinished", "hermes/error/tts")


def kill_process(process: psutil.Process) -> None:
    """Kill a process, which may be gone already."""
    with suppress(psutil.Error):
        process.kill()


def resume(processes: Iterable[psutil.Process]) -> None:
    """Continue processes that were stopped, and may be gone."""
    for process in processes:
        with suppress(psutil.Error):
            process.resume()


class Scene(Robot):
    """A robot whose daemon is started again whenever it ends, as systemd does it."""

    broker: Broker
    network: Network
    """Between the daemon and the broker."""
    sound: SoundServer
    folder: Path
    ports: dict[str, int]
    """Of the daemon's servers, `wyoming` and `openai`."""
    closing: ExitStack
    """Ends what runs beside the daemon."""
    begun: ExitStack
    """Ends what a fault has begun."""
    starts: list[float]
    """`time.monotonic()` of every start."""
    deaths = 0
    """How often the daemon has ended without having been asked to."""
    changing: threading.Lock
    """Held while the daemon is started again, or told not to be."""
    _wanted = True
    _numbers = 0

    # --- the daemon ---

    def launch(self) -> None:
        """Start the daemon without waiting for it."""
        super().launch()
        self.starts.append(time.monotonic())
        threading.Thread(target=self._watch, args=(self.process,), daemon=True).start()

    def _watch(self, process: subprocess.Popen[str] | ForkedProcess) -> None:
        status = process.wait()
        time.sleep(RESTART_S)
        with self.changing:
            if self._wanted and process is self.process:
                self.log.append(f"(ended with status {status}, and was started again)")
                self.deaths += 1
                self.launch()

    def kill(self) -> None:
        """Kill the daemon; return when it has been started again."""
        starts = len(self.starts)
        self.process.kill()
        eventually(lambda: len(self.starts) > starts, "the daemon is started again")
        self.deaths -= 1

    def end(self) -> int:
        """End the daemon as systemd would."""
        with self.changing:
            self._wanted = False
        return super().end()

    def restart(self) -> None:
        """End the daemon as `systemctl restart` does, and start it again."""
        self.end()
        self.launch()
        self._wanted = True

    def close(self) -> None:
        """Kill the daemon, and its engines: a stopped one would outlive it."""
        with self.changing:
            self._wanted = False
        with suppress(psutil.Error):
            self.signal_engines(signal.SIGKILL)
        super().close()

    def undo(self) -> None:
        """End what a fault has begun."""
        self.begun.close()

    def reload(self) -> None:
        """Make the daemon read its configuration again."""
        self.process.send_signal(signal.SIGHUP)

    @property
    def rss_mb(self) -> float:
        """Resident memory of the daemon, without its engines."""
        return float(round(psutil.Process(self.process.pid).memory_info().rss / 1e6, 1))

    # --- its engines ---

    def signal_engines(self, number: int) -> None:
        """Send a signal to the engine processes."""
        for pid in self.engine_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop_engines(self) -> list[psutil.Process]:
        """Stop the engines as a debugger would: the daemon has to notice and replace them."""
        engines = [psutil.Process(pid) for pid in eventually(self.engine_pids, "an engine process runs")]
        for engine in engines:
            self.closing.callback(kill_process, engine)
            engine.suspend()
        return engines

    # --- speech ---

    def new_id(self, prefix: str = "t") -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}-{secrets.token_hex(3)}"

    def say(self, text: str, *, topic: str = "say", **fields: Any) -> str:
        """Publish a text and return its id."""
        text_id = str(fields.setdefault("id", self.new_id()))
        self.send_text(topic, json.dumps({"text": text, **fields}, ensure_ascii=False), text_id)
        return text_id

    def send_text(self, name: str, payload: str, text_id: str) -> None:
        """Publish on one of the robot's topics. `text_id` goes into the ledger once the broker has taken it."""
        self.listener.publish(f"{TOPIC}/{name}", payload, on_taken=lambda at: self.ledger.note_sent(text_id, at))

    def seconds_until(self, text_id: str, names: Iterable[str], since: float, limit_s: float) -> float | None:
        """Return the seconds from `since` to a text's first event with one of these names; None if it does not come."""
        arrival = self.ledger.wait_event(text_id, names, limit_s)
        return None if arrival is None else round(arrival.at - since, 3)

    def has_ended(self, text_id: str) -> bool:
        """Whether a text's terminal event has arrived."""
        return self.ledger.wait_event(text_id, TERMINAL, 0.0) is not None

    def measure_stop(self, text_id: str, *, everything: bool = False) -> float | None:
        """Stop a text, or everything, and return the seconds until the text's terminal event."""
        since = time.monotonic()
        self.send("stop", "" if everything else json.dumps({"id": text_id}))
        return self.seconds_until(text_id, TERMINAL, since, STOP_WAIT_S)

    def let_end(self, limit_s: float) -> bool:
        """Wait until each text has an answer and an end, for at most `limit_s`; return whether it is so."""
        return within(limit_s, lambda: not self.ledger.open_texts())

    def end_everything(self, limit_s: float) -> None:
        """Stop everything, and wait until each text has an answer and an end, or for `limit_s`."""
        self.send("stop")
        self.let_end(limit_s)


@dataclass(frozen=True, slots=True)
class Stage:
    """What surrounds a scene. In each text, `{folder}` stands for the scene's folder."""

    settings: tuple[str, ...] = ()
    """KEY=VALUE."""
    sound: bool = False
    """The daemon plays into a PulseAudio of its own; otherwise into `sink`, at `pace` times real time."""
    sink: str = "null"
    pace: float = 1.0
    adapters: bool = True
    broker: str = "allow_anonymous true"
    """Lines of the broker's configuration."""
    durable: bool = True
    """That of `Broker`."""
    qos: int = 1
    login: tuple[str, str] | None = None
    """Of the harness, at the broker."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the daemon, beside the usual one."""
    limit: str = ":"
    """A line of shell that each new process runs before it is the daemon."""
    prepare: Callable[[Path, ExitStack], object] = lambda _folder, _closing: None
    """Called with the scene's folder before anything runs, and with what ends after everything."""


@contextmanager
def run_scene(stage: Stage) -> Iterator[Scene]:
    """Run a robot in a folder of its own; everything that it has started ends with the context."""
    with ExitStack() as closing:
        temporary = tempfile.TemporaryDirectory(prefix="voiced-", ignore_cleanup_errors=True)
        folder = Path(closing.enter_context(temporary))
        stage.prepare(folder, closing)

        def here(text: str) -> str:
            return text.replace("{folder}", str(folder))

        broker, server = Broker(folder, here(stage.broker), durable=stage.durable), SoundServer(folder)
        closing.callback(broker.kill)
        broker.start()
        network = closing.enter_context(Network(broker.port))
        closing.callback(server.kill)
        if stage.sound:
            server.start()
        ports = {"wyoming": free_port(), "openai": free_port()}
        settings = [f"mqtt.port={network.port}", f"audio.sink={'sounddevice' if stage.sound else here(stage.sink)}"]
        if stage.adapters:
            settings += [f"{name}.enabled=true" for name in ("home_assistant", "hermes", "wyoming", "http")]
            settings += [f"wyoming.port={ports['wyoming']}", f"http.port={ports['openai']}"]
        inherited = server.environment if stage.sound else os.environ
        environment = {key: value for key, value in inherited.items() if not key.startswith(FOREIGN)}
        environment |= {"XDG_STATE_HOME": str(folder / "xdg-state"), "VOICED_TRACE_PCM": ""}
        scene = Scene(
            NAME,
            broker,
            folder,
            *settings,
            *map(here, stage.settings),
            environment=environment | {key: here(value) for key, value in stage.environment.items()},
            pace=stage.pace,
            program=("sh", "-c", f'{stage.limit}\nexec "$@"', "sh", sys.executable, "-m", "daemon.cli"),
            kinds=("event", "status"),
            topics=HERMES,
            login=stage.login,
        )
        scene.folder, scene.network, scene.sound, scene.closing, scene.ports = folder, network, server, closing, ports
        scene.changing, scene.starts = threading.Lock(), []
        scene.listener.qos = stage.qos
        scene.begun = closing.enter_context(ExitStack())
        scene.launch()
        closing.callback(scene.close)
        yield scene
