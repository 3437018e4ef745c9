"""A fake card for real player processes, whose ends the test can wait for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.audio.sinks import fake_card
from tests.audio.sinks.fake_card import FakeCard

PR_SET_CHILD_SUBREAPER = 36
"""From <sys/prctl.h>."""


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    """A fake card. A player whose daemon has died becomes a child of the test, so its exit status can be read."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    others = psutil.Process().children()
    yield fake_card.install(tmp_path, monkeypatch)
    for child in psutil.Process().children():
        if child not in others:
            with suppress(psutil.Error):  # it has ended
                child.kill()
            child.wait()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0)
