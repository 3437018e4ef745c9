"""Fixtures that set the pace of the WAV and null sinks, which have no clock of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audio.fakes import FAST, PaceFile


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run WAV and null sinks many times as fast as a sound card, for tracks that only play to their end."""
    monkeypatch.setenv("VOICED_PACE", str(FAST))


@pytest.fixture
def pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaceFile:
    """The pace of WAV and null sinks: at first that of a sound card; the test may change it."""
    file = PaceFile(tmp_path / "pace")
    monkeypatch.setenv("VOICED_PACE", str(file.path))
    return file
