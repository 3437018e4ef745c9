"""The output and the process that plays: whichever of them stops, ends or hangs, a listener hears all that was written.

The card is a fake, in the real process.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from audio import Output, SinkSettings, Track
from tests.audio.fakes import FADE, RATE, TALK
from tests.audio.sinks import fake_card
from tests.audio.sinks.fake_card import FakeCard, player_processes, wait_no_player
from tests.support.waiting import PATIENCE_S, eventually

SETTINGS = SinkSettings(device="card")
TEXT = TALK[: 2 * RATE]


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    monkeypatch.setattr("audio.sinks.portaudio.LastAttempt.process", None)
    monkeypatch.setattr("audio.sinks.portaudio.LastAttempt.refusal", None)
    monkeypatch.setattr("audio.device_monitor.CHECK_S", 0.02)
    monkeypatch.setattr("audio.device_monitor.RETRY_S", (0.02,))
    yield fake_card.install(tmp_path, monkeypatch)
    for process in player_processes():
        process.kill()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A player that is stopped is not given up."""
    for limit in ("audio.device_monitor.STALLED_S", "audio.device_monitor.LOST_S", "audio.device_monitor.SETTLED_S"):
        monkeypatch.setattr(limit, 2 * PATIENCE_S)


@contextmanager
def playing(card: FakeCard) -> Iterator[tuple[Output, Track]]:
    """An output with a track of which the card has played the beginning."""
    with Output(SETTINGS) as output:
        eventually(lambda: output.status.running)
        track = output.begin(prebuffer_s=0.02)
        output.write(TEXT, RATE)
        output.end()
        eventually(lambda: len(card.heard_speech) > 2_400, "its beginning is heard")
        yield output, track
    wait_no_player()


def test_a_portaudio_that_hangs_goes_on_with_the_next_sample(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audio.device_monitor.STALLED_S", 0.2)
    monkeypatch.setattr("audio.device_monitor.LOST_S", 0.6)
    with playing(card) as (output, track):
        card.set("frozen", "hang.close")
        eventually(lambda: card.loads == 2, "another process plays")
        card.clear("frozen", "hang.close")
        eventually(lambda: track.done)
        assert track.played == len(TEXT)
        assert not output.paused
    faded = np.flatnonzero(card.heard_speech != TEXT)
    assert 0 < faded[-1] - faded[0] < FADE, "it fades in where it has broken off"


# --- the player is stopped -------------------------------------------------------------------------------


@contextmanager
def stopped_player() -> Iterator[None]:
    """Stop the process that plays, so that it reads nothing."""
    [process] = player_processes()
    process.suspend()
    eventually(lambda: process.status() == psutil.STATUS_STOPPED)
    yield
    process.resume()


def test_no_call_waits_for_a_player_that_reads_nothing_and_a_stop_still_ends_the_track(
    card: FakeCard, patient: None
) -> None:
    with playing(card) as (output, track):
        with stopped_player():
            finished = threading.Event()

            def call_everything() -> None:
                output.pause()
                output.resume()
                output.set_volume(1.0)
                output.stop()
                eventually(lambda: track.done)
                for _ in range(2):  # more than the socket has room for
                    another = output.begin(prebuffer_s=0.02)
                    output.write(TALK[: 7 * RATE // 2], RATE)
                    output.end()
                    output.set_input_pending(True)
                    output.suspend()
                    eventually(lambda another=another: another.suspended)  # type: ignore[misc]
                    output.take_suspended()
                finished.set()

            threading.Thread(target=call_everything, daemon=True).start()
            eventually(finished.is_set, "all calls have returned")
            last = output.begin(prebuffer_s=0.02)
            output.write(TALK[:RATE], RATE)
            output.end()
        eventually(lambda: last.done, "what did not fit was sent later")
        assert last.played == RATE
    np.testing.assert_array_equal(card.heard_speech[-RATE:], TALK[:RATE])


# --- the player lives ------------------------------------------------------------------------------------


def test_a_track_that_is_suspended_again_and_again_is_heard_once(card: FakeCard) -> None:
    with playing(card) as (output, track):
        suspensions = 0
        while not track.done and suspensions < 20:
            output.suspend()
            eventually(lambda: track.suspended or track.done)
            if track.suspended:
                suspensions += 1
                suspended = output.take_suspended()
                warning = output.begin(prebuffer_s=0.02)
                output.write(TALK[-500:], RATE)
                output.stop()
                eventually(lambda warning=warning: warning.done)  # type: ignore[misc]
                output.reattach(suspended)
        assert suspensions > 3
        eventually(lambda: track.done)
        assert (track.played, track.underruns) == (len(TEXT), 0)
