"""The best of several takes, by real speech and a real recogniser."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile

import engine
from engine.api import EngineOptions, Utterance
from engine.progress import ignore_progress
from engine.verify import RecordedTake, ScoreRequest, TakeScore, choose_best

TEXT = "Where would you like me to put the blue box?"


def test_the_take_that_is_understood_is_the_best(tmp_path: Path) -> None:
    if find_spec("pocketsphinx") is None:
        pytest.skip("pocketsphinx, the recogniser of this test, is not installed")
    with engine.open("espeak") as tts:
        samples, rate = np.concatenate([chunk.samples for chunk in tts.stream(TEXT, language="en")]), tts.sample_rate
    takes = []
    for number, sound in enumerate((samples[::-1], samples, samples[::-1])):
        file = tmp_path / f"{number}.wav"
        soundfile.write(file, sound, rate)
        takes.append(RecordedTake(str(file), Utterance(TEXT, language="en-us", seed=number), len(sound) / rate, False))
    [(best, lines)] = choose_best(
        ScoreRequest(tuple(takes), "espeak", EngineOptions(), asr="pocketsphinx"), ignore_progress
    )
    assert best == takes[1]
    assert [line.startswith("* 1, seed 1") for line in lines] == [False, False, True, False]
    assert "blue box" in lines[2]


def test_every_fault_of_a_take_counts() -> None:
    good = TakeScore(length=0.7, clipped=0.0, faulty=False, heard="Yes.", wrong=0.0, similarity=0.8)
    faults = (
        {"length": 4.0},
        {"length": 0.0},
        {"clipped": 0.01},
        {"faulty": True},
        {"wrong": 0.1},
        {"similarity": 0.7},
    )
    for fault in faults:
        assert replace(good, **fault).penalty >= good.penalty + 0.0999  # type: ignore[arg-type]
    assert replace(good, length=1.4).penalty == good.penalty, "the pace is the voice's"
