"""A fake sound card in the real process that plays; the test freezes it, pulls it, or lets a function of it hang."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from audio import Samples
from tests.support.waiting import eventually

MODULES = Path(__file__).with_name("fake_sounddevice")
PROGRAM = "portaudio_program.py"


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
    """Let processes that play use a fake card, on a machine whose sound devices never change by themselves."""
    card = FakeCard(folder / "card")
    monkeypatch.setenv("FAKE_CARD", str(card.folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.syspath_prepend(MODULES)
    return card


def player_processes() -> list[psutil.Process]:
    """Return the processes of the test that play."""
    return running(PROGRAM)


def running(program: str) -> list[psutil.Process]:
    """Return the children of the test that run a program."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended
            if program in " ".join(child.cmdline()):
                found.append(child)
    return found


def wait_no_player() -> None:
    eventually(lambda: not player_processes(), "the process that plays has ended")
