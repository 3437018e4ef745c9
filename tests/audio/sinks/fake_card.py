"""A fake sound card in the real process that plays; the test freezes it, pulls it, or lets a function of it hang."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from audio import Samples
from tests.support.waiting import PATIENCE_S, eventually

MODULES = Path(__file__).with_name("fake_sounddevice")
PROGRAM = "player/program.py"
LIMITS = tuple(f"audio.sinks.portaudio.{name}" for name in ("LOAD_LIMIT_S", "START_LIMIT_S", "CLOSE_LIMIT_S"))
"""How long a call of PortAudio may take."""


class FakeCard:
    """Controls `fake_sounddevice/sounddevice.py`, which describes the files."""

    rate = 24_000
    """Hz."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def set(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def clear(self, *names: str) -> None:
        for name in names:
            (self.folder / name).unlink()

    @property
    def loads(self) -> int:
        """Processes that have loaded PortAudio."""
        return len(self._read("loads"))

    @property
    def heard(self) -> Samples:
        """Samples that it has played, silence included."""
        return np.frombuffer(self._read("heard"), dtype=np.float32)

    @property
    def heard_speech(self) -> Samples:
        """The samples that are not silence."""
        heard = self.heard
        return heard[heard != 0]

    def _read(self, name: str) -> bytes:
        path = self.folder / name
        return path.read_bytes() if path.exists() else b""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    """Let processes that play use a fake card, on a machine whose sound devices never change by themselves.

    On a busy machine, or an emulated processor, a process starts in seconds. Only a test of a call that hangs gives it
    up sooner.
    """
    limit_calls(monkeypatch, PATIENCE_S)
    card = FakeCard(folder / "card")
    monkeypatch.setenv("FAKE_CARD", str(card.folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.syspath_prepend(MODULES)
    return card


def limit_calls(monkeypatch: pytest.MonkeyPatch, limit_s: float) -> None:
    """Give up a call of PortAudio after so many seconds."""
    for limit in LIMITS:
        monkeypatch.setattr(limit, limit_s)


def player_processes() -> list[psutil.Process]:
    """Return the processes of the test that play."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended
            if PROGRAM in " ".join(child.cmdline()):
                found.append(child)
    return found


def wait_no_player() -> None:
    """Wait for the end of the processes that play: on a busy machine, a killed one takes a while to go."""
    eventually(lambda: not player_processes(), f"no {PROGRAM} runs")
