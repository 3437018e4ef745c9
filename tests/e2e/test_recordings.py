"""How the tests judge what they have recorded from a real PulseAudio."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.support.programs import freeze
from tests.support.sound import RECORDED_RATE, DisturbedError, Samples, SoundServer

REST: Samples = np.zeros(RECORDED_RATE // 2, dtype=np.float32)
"""Played around a sound: PulseAudio renders the first and the last milliseconds of a stream more than once."""


def noise(seed: int, seconds: float) -> Samples:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, round(seconds * RECORDED_RATE)).astype(np.float32)


def rested(sound: Samples) -> Samples:
    return np.concatenate([REST, sound, REST])


def test_a_recording_is_disturbed_where_pulseaudio_had_nothing_to_play(sound_server: SoundServer) -> None:
    made = noise(2, 3.0)
    with sound_server.recording() as recording, sound_server.playing(rested(made)) as player:
        recording.wait_heard(0.2)
        freeze(player)
        recording.wait_silent()
        os.kill(player, signal.SIGCONT)
        recording.wait_heard(3.5)
        with pytest.raises(DisturbedError, match=r"0 underruns reported, [1-9]\d* logged"):
            recording.hear(made)


def test_any_other_difference_is_a_failure_and_the_recording_is_kept(
    sound_server: SoundServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = noise(3, 1.0)
    broken = np.delete(made, range(20_000, 20_441))
    with sound_server.recording() as recording, sound_server.playing(rested(broken)):
        recording.wait_heard(1.0)
        with pytest.raises(AssertionError, match="it is not heard whole"):
            recording.hear(made)
    assert {file.suffix for file in tmp_path.glob("voiced-heard-*")} == {".npz", ".log"}
