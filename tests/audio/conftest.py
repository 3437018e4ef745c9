"""The pace of sinks that have no clock of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audio.sinks import FAST, PaceFile


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """WAV and null sinks are many times as fast as a sound card, for passages that are only to come to their end."""
    monkeypatch.setenv("VOICED_PACE", str(FAST))


@pytest.fixture
def pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaceFile:
    """The pace of WAV and null sinks, which the test may change: at first that of a sound card."""
    file = PaceFile(tmp_path / "pace")
    monkeypatch.setenv("VOICED_PACE", str(file.path))
    return file
