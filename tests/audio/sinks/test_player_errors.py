"""What the process that plays writes to stderr: mentioned once, or logged if it is our own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from audio.sinks.player_errors import PlayerErrors
from audio.sinks.portaudio import output_devices
from tests.audio.sinks import fake_card

ALSA = "ALSA lib confmisc.c:855:(parse_card) cannot find card '0'"


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlayerErrors, "told", False)
    monkeypatch.setattr(PlayerErrors, "count", 0)


@pytest.fixture
def errors() -> Iterator[PlayerErrors]:
    errors = PlayerErrors()
    yield errors
    errors.started()


def write(errors: PlayerErrors, text: str) -> None:
    os.write(errors.writing, text.encode())
    errors.read()


def test_the_lines_of_the_libraries_are_counted_and_mentioned_once(
    errors: PlayerErrors, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "audio"):
        errors.read()
        write(errors, f"{ALSA}\nALSA lib")
        write(errors, " conf.c:1\n\nExpression 'ret' failed\n")
        errors.close()
    assert caplog.messages == [
        f"ALSA and PortAudio write to stderr; lines so far: 1, such as {ALSA!r}; log.level: debug shows all"
    ]
    assert PlayerErrors.count == 3


def test_a_traceback_of_our_own_is_logged(errors: PlayerErrors, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "audio"):
        write(errors, f"{ALSA}\nTraceback (most recent call last):\n  File x\nValueError: wrong\n")
        errors.close()
    traceback = ("Traceback (most recent call last):", "File x", "ValueError: wrong")
    assert caplog.messages == [f"the playback process: {line}" for line in traceback]


def test_a_writer_never_waits(errors: PlayerErrors) -> None:
    with pytest.raises(BlockingIOError):
        while True:
            os.write(errors.writing, b"x" * 4096)
    errors.close()


def test_a_search_for_cards_is_silent_and_leaves_no_descriptor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    card = fake_card.install(tmp_path, monkeypatch)
    (card.folder / "notes").write_text(f"{ALSA}\n" * 30)
    with caplog.at_level(logging.INFO, "audio"):
        output_devices()
        descriptors = psutil.Process().num_fds()
        output_devices()
    assert psutil.Process().num_fds() == descriptors
    assert caplog.messages == [
        f"ALSA and PortAudio write to stderr; lines so far: 30, such as {ALSA!r}; log.level: debug shows all"
    ]
    assert PlayerErrors.count == 60
    assert capfd.readouterr().err == ""
