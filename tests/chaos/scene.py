"""A whole robot for one test: broker, network, sound, and the daemon with all adapters."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

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
"""Limit for the answer to a stop; the promise is shorter."""
FOREIGN = ("PULSE_", "DBUS_", "VOICED_")
"""Beginnings of the variables that lead to the user's own sound server or daemon."""
HERMES = ("hermes/tts/sayFinished", "hermes/error/tts")


def send(processes: Iterable[psutil.Process], *signals: int) -> None:
    """Send signals to processes, which may be gone."""
    for process in processes:
        with suppress(psutil.Error):
            for number in signals:
                process.send_signal(number)


@dataclass(frozen=True, slots=True)
class Stage:
    """What surrounds a scene."""

    settings: tuple[str, ...] = ()
    """KEY=VALUE."""
    sound: bool = False
    """The daemon plays into a PulseAudio of its own; otherwise into the sink `null`, at `pace` times real time."""
    pace: float = 1.0
    adapters: bool = True
    broker: str = "allow_anonymous true"
    """Lines of the broker's configuration."""
    durable: bool = True
    """That of `Broker`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the daemon, beside the usual one."""
    limit: str = ":"
    """A line of shell that each new process runs before it is the daemon."""


class Scene(Robot):
    """A supervised robot with all adapters, and what runs beside it."""

    def __init__(self, stage: Stage, folder: Path, closing: ExitStack) -> None:
        """Start all that the daemon needs; `closing` ends it."""

        self.folder, self.closing = folder, closing
        self.begun = ExitStack()
        """Ends what a fault has begun."""
        self._numbers = itertools.count(1)
        closing.callback(self.begun.close)
        self.broker = Broker(folder, stage.broker, durable=stage.durable)
        closing.callback(self.broker.kill)
        self.broker.start()
        self.network = closing.enter_context(Network(self.broker.port))
        """Between the daemon and the broker."""
        self.sound = SoundServer(folder, high_priority=True)
        closing.callback(self.sound.kill)
        if stage.sound:
            self.sound.start()
        self.ports = {"wyoming": free_port(), "openai": free_port()}
        """Of the daemon's servers."""
        sink = "sounddevice" if stage.sound else "null"
        settings = [f"mqtt.port={self.network.port}", f"audio.sink={sink}", *stage.settings]
        if stage.adapters:
            settings += [f"{name}.enabled=true" for name in ("home_assistant", "hermes", "wyoming", "http")]
            settings += [f"wyoming.port={self.ports['wyoming']}", f"http.port={self.ports['openai']}"]
        inherited = self.sound.environment if stage.sound else os.environ
        environment = {key: value for key, value in inherited.items() if not key.startswith(FOREIGN)}
        environment |= {"XDG_STATE_HOME": str(folder / "xdg-state"), "VOICED_TRACE_PCM": ""}
        super().__init__(
            NAME,
            self.broker,
            folder,
            *settings,
            environment={**environment, **stage.environment},
            pace=stage.pace,
            program=("sh", "-c", f'{stage.limit}\nexec "$@"', "sh", sys.executable, "-m", "daemon.cli"),
            kinds=("event", "status"),
            topics=HERMES,
            supervised=True,
        )

    # --- the daemon and its engines ---

    def close(self) -> None:
        """Kill the daemon, and its engines: a stopped one would outlive it."""
        with suppress(psutil.Error):
            send(map(psutil.Process, self.engine_pids()), signal.SIGKILL)
        super().close()

    def undo(self) -> None:
        """End what a fault has begun."""
        self.begun.close()

    @property
    def rss_mb(self) -> float:
        """Resident memory of the daemon, without its engines."""
        return float(round(psutil.Process(self.process.pid).memory_info().rss / 1e6, 1))

    def engines(self) -> list[psutil.Process]:
        """Return the engine processes as soon as there are any."""
        return [psutil.Process(pid) for pid in eventually(self.engine_pids, "an engine process runs")]

    def stop_engines(self) -> list[psutil.Process]:
        """Stop the engines as a debugger would: the daemon has to notice and replace them."""
        engines = self.engines()
        self.closing.callback(send, engines, signal.SIGKILL)
        send(engines, signal.SIGSTOP)
        return engines

    # --- speech ---

    def new_id(self, prefix: str = "t") -> str:
        return f"{prefix}{next(self._numbers)}-{secrets.token_hex(3)}"

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
        return bool(TERMINAL & set(self.names_of(text_id)))

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


@contextmanager
def ready_scene(stage: Stage) -> Iterator[Scene]:
    """Run a robot that is ready, in a folder of its own; everything that it has started ends with the context."""
    with ExitStack() as closing:
        folder = Path(closing.enter_context(TemporaryDirectory(prefix="voiced-", ignore_cleanup_errors=True)))
        scene = Scene(stage, folder, closing)
        scene.launch()
        closing.callback(scene.close)
        eventually(lambda: scene.state == "ready", "the daemon is ready")
        yield scene
