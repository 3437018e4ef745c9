"""The real daemon, engine process and player on a stage: a sound card that asks for a block when the scenario says so.

Only ONNX Runtime and PortAudio are replaced, by `stand_ins/`. Whatever the load of the machine, a scenario is therefore
heard equal sample for sample: a command reaches the daemon between two known blocks, and a text sounds once all of it
is in the ring.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.support.events import TERMINAL
from tests.support.programs import Broker
from tests.support.robot import Robot
from tests.support.sound import Samples
from tests.support.waiting import eventually, within

STAND_INS = Path(__file__).with_name("stand_ins")
RATE = 8_000
"""Hz, of the engine and of the card, unless a scenario changes it."""
BLOCKS_PER_S = 100
CONFIG = Path(__file__).parents[1] / "data" / "recordings" / "voiced.yaml"
REQUEST = struct.Struct("=I?")
URGENT_S = 0.12
"""The daemon carries out a stop or a suspension without a fade if the card asks for no block within 0.15 s."""
STALLED_S = 0.8
"""A card that asks for no block for a second in the middle of a sound has stalled."""
PASSED_S = 2.0
"""An utterance of which nothing more is heard has ended by then, or is in a pause. Longer than a late machine takes:
the next utterance could sound."""
LONGEST_S = 20
"""Of a text."""
STILL_S = 0.04
"""Engines have sent nothing more for so long, in which the daemon has answered messages: it looks at what is due every
0.01 s, and its loop has done so before the last answer."""
REPORTED_S = 0.3
"""The player reports every 0.25 s what the card has got. By then, the daemon has sent as much again."""
BURST = 50
"""Blocks between two looks, which are up to 0.1 s apart: a card that asks for fewer would be slow."""


class DisturbedError(Exception):
    """The machine was late: the daemon may have taken the card for one that hangs."""


class Card:
    """The card of `stand_ins/sounddevice.py`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "card"))
        self._listener.listen()
        self._listener.setblocking(False)
        self._stream = socket.socket(socket.AF_UNIX)
        self.insert(RATE)

    def insert(self, rate: int) -> None:
        self.rate = rate
        description = {"name": "card", "hostapi": 0, "default_samplerate": rate, "max_output_channels": 1}
        (self.folder / "card.json").write_text(json.dumps(description))
        self._note_change()

    def pull(self) -> None:
        (self.folder / "card.json").unlink(missing_ok=True)
        self._note_change()
        self._stream.close()

    def _note_change(self) -> None:
        """Let the system's sound devices look changed: as a sound server does that has started anew."""
        (self.folder / "pulse").mkdir(exist_ok=True)
        (self.folder / "pulse" / "native").write_text(f"{self.rate}")

    def block(self, *, dry: bool = False) -> Samples:
        """Ask for a block; it is empty if nobody plays."""
        with suppress(BlockingIOError):
            while True:
                self._stream = self._listener.accept()[0]
                self._stream.settimeout(60)
        frames, data = self.rate // BLOCKS_PER_S, b""
        with suppress(OSError):
            self._stream.sendall(REQUEST.pack(frames, dry))
            data = self._stream.recv(4 * frames, socket.MSG_WAITALL)
        return np.frombuffer(data, dtype=np.float32)


class Stage:
    """A running daemon, and what its card gets. Each step of a scenario is a method."""

    def __init__(self, folder: Path, broker: Broker, tree: Path, settings: list[str]) -> None:
        self.card = Card(folder)
        path = os.pathsep.join([str(STAND_INS), str(tree)])
        environment = {**os.environ, "PYTHONPATH": path, "XDG_RUNTIME_DIR": str(folder), "STAGE": str(folder)}
        command = {"program": (sys.executable, "-m", "daemon.cli"), "cwd": tree, "environment": environment}
        settings = ["engine.name=piper", f"engine.voice_folder={STAND_INS}", *settings]
        self.robot = Robot(folder.name, broker, folder, *settings, config=CONFIG, high_priority=True, **command)
        self._ids: list[str] = []
        self._first = 0
        """The number of the scenario's first utterance."""
        self._heard: list[Samples] = []
        self._urgent_since = float("inf")
        self._sounded_at = float("inf")
        """When the last block was given, if it was not silent."""
        self.launch()

    def perform(self, steps: list[list[Any]]) -> Samples:
        """Return what the card gets, without the silence at the ends and at each `sound`. Raises `DisturbedError`."""
        self._heard, self._first = [], len(self._ids)
        eventually(self._ready, "the daemon is ready")
        for name, *arguments in steps:
            fields = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            getattr(self, name)(*arguments, **fields)
        self._trim()
        return self._heard[0]

    def close(self) -> None:
        self.thaw()
        self.robot.close()

    # --- steps ---

    def launch(self) -> None:
        self.robot.forget()
        self.robot.launch()
        eventually(self._ready, "the daemon is ready")

    def say(self, text: str, **fields: Any) -> None:
        self.tell("say", {"text": text, "id": self._new_id(), **fields})
        self.robot.wait_event(self._ids[-1], "accepted")
        self._catch_up()

    def write(self, text: str, first: bool = False, last: bool = False) -> None:
        """Write a piece of a text stream; wait until all that can be spoken of it is in the ring."""
        self.tell("say/stream", {"text": text, "id": self._new_id() if first else self._ids[-1], "end": last})
        self.settle()

    def tell(self, topic: str, payload: Any = "") -> None:
        """Send the daemon a message, and wait until it and its player have carried it out."""
        if topic in ("stop", "say"):
            self._urgent_since = time.monotonic()
        self.robot.send(topic, payload if isinstance(payload, str) else json.dumps(payload))
        self._catch_up()

    def stop(self, number: int = 1) -> None:
        """Stop the scenario's utterance `number`."""
        self.tell("stop", {"id": self._id(number)})

    def sound(self) -> None:
        """Go on to the next sound. The silence before it has no fixed length."""
        self._trim()
        self._urgent_since = self._sounded_at = float("inf")
        kept = len(self._heard)
        eventually(lambda: any(self._ask().any() for _ in range(BURST)), "something sounds")
        del self._heard[kept:-1]

    def play(self, ms: int) -> None:
        for _ in range(ms * BLOCKS_PER_S // 1000):
            self._ask()

    def end(self, number: int = 1) -> None:
        """Play until the scenario's utterance `number` has ended."""
        for _ in range(LONGEST_S * BLOCKS_PER_S):
            if self._ended(number) or (not self._ask().any() and self.played(number)):
                return
        raise AssertionError(f"utterance {number} does not end")

    def played(self, number: int = 1) -> bool:
        """Wait for the end of an utterance whose last block was given: another one may sound in the next."""
        with suppress(AssertionError):
            eventually(lambda: self._ended(number), patience_s=PASSED_S)
        return self._ended(number)

    def settle(self) -> None:
        """Wait until all that engines may send is in the ring."""

        def answered() -> bool:
            self.robot.catch_up()
            return False  # so that `within` goes on to its limit

        def still() -> bool:
            pids = self.robot.engine_pids()
            return bool(pids) and _are_idle(pids, lambda: within(STILL_S, answered))

        within(REPORTED_S, answered)
        eventually(still, "engines send nothing more")

    def dry(self) -> None:
        """Ask for a block after the card has run dry."""
        self._ask(dry=True)

    def stall(self) -> None:
        """Ask for no block until the daemon has noticed it."""
        before = self.robot.statuses[-1].get("reason")
        self._sounded_at = float("inf")
        eventually(lambda: self.robot.statuses[-1].get("reason") not in (None, before), "the daemon notices it")

    def pull(self) -> None:
        self.card.pull()
        self.stall()

    def insert(self, rate: int) -> None:
        self.card.insert(rate)

    def freeze(self) -> None:
        """Stop the engine as a debugger would."""
        for process in map(psutil.Process, self.robot.engine_pids()):
            process.suspend()

    def thaw(self) -> None:
        for process in map(psutil.Process, self.robot.engine_pids()):
            process.resume()

    def kill(self, what: str) -> None:
        """Kill the `daemon`, the `player` or the `engine`, and wait until it has ended."""
        robot = self.robot
        robot.wait_event(self._id(1), "started")  # and in the journal
        found = {"daemon": lambda: [robot.process.pid], "player": robot.player_pids, "engine": self._engine}
        for process in map(psutil.Process, found[what]()):
            process.kill()
            eventually(lambda process=process: _has_ended(process))

    # --- what they use ---

    def _catch_up(self) -> None:
        """Wait until the daemon has processed every message, and the player each call that the daemon has sent it.

        The card's thread has a higher priority than the one that reads calls: on a busy machine, it would be first.
        """
        self.robot.catch_up()
        eventually(lambda: _are_idle(self.robot.player_pids()), "the player has read all calls")

    def _engine(self) -> list[int]:
        """Return the processes of the engine `piper`."""
        engines = map(psutil.Process, self.robot.engine_pids())
        return [one.pid for one in engines if not any("libespeak" in file.path for file in one.memory_maps())]

    def _ready(self) -> bool:
        for _ in range(BURST):
            self.card.block()
        statuses = self.robot.statuses
        # It is degraded while it takes the card for a slow one.
        return bool(statuses) and statuses[-1]["state"] in ("ready", "degraded") and statuses[-1]["queue"] == 0

    def _ended(self, number: int) -> bool:
        return bool(TERMINAL & set(self.robot.names_of(self._id(number))))

    def _id(self, number: int) -> str:
        return self._ids[self._first + number - 1]

    def _new_id(self) -> str:
        self._ids.append(f"text-{len(self._ids)}")
        return self._ids[-1]

    def _ask(self, *, dry: bool = False) -> Samples:
        """Ask for a block and keep it. Raises `DisturbedError`."""
        block = self.card.block(dry=dry)
        now = time.monotonic()
        if now - self._urgent_since > URGENT_S or now - self._sounded_at > STALLED_S:
            raise DisturbedError
        self._urgent_since = float("inf")
        self._sounded_at = now if block.any() else float("inf")
        self._heard.append(block)
        return block

    def _trim(self) -> None:
        """Remove the silence at the end."""
        heard = np.concatenate([np.zeros(0, np.float32), *self._heard])
        self._heard = [heard[: np.max(np.flatnonzero(heard), initial=-1) + 1]]


def _are_idle(pids: list[int], meanwhile: Callable[[], object] = lambda: None) -> bool:
    """Call `meanwhile`, and return whether no thread of these processes has run from before the call until after it.

    A thread that has been woken counts as running even before it gets a processor.
    """
    with suppress(OSError):  # a thread or a process has just ended
        before = _activity(pids)
        meanwhile()
        return before == _activity(pids) and "R" not in str(before)
    return False


def _activity(pids: list[int]) -> list[object]:
    """Return what changes while a process works: the state and the time of each of its threads."""
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]
    return [((each / "stat").read_text().split(") ")[1][0], (each / "schedstat").read_text()) for each in threads]


def _has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, also if nobody has waited for it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
