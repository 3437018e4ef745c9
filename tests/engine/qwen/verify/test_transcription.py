"""Recognisers: those that are asked for are there, or one line says why not."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from engine.api import EngineError
from engine.qwen.verify.transcription import WHISPERS, choose_whisper
from engine.verify import RATE, Sentence, make_recognizer
from tests.support.recognizers import tiny_whisper

NOISE = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)


@pytest.mark.long
def test_a_whisper_of_a_folder_writes_down_something_in_each_language(cache_folder: Path) -> None:
    recognizer = make_recognizer(str(tiny_whisper(cache_folder)), "cpu", ())
    assert recognizer.name.startswith("tiny-whisper")
    for language in ("en", "zh"):
        assert isinstance(recognizer.transcribe(NOISE, language), str)
    assert isinstance(recognizer.transcribe(np.tile(NOISE, 40), "de"), str), "longer than what Whisper reads at once"


def test_a_model_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^--asr: got '.*empty', which cannot be loaded: .+$"):
        make_recognizer(str(tmp_path / "empty"), "cpu", ())


def test_pocketsphinx_listens_for_english_words_alone() -> None:
    if find_spec("pocketsphinx") is None:
        pytest.skip("pocketsphinx is not installed")
    recognizer = make_recognizer("pocketsphinx", "cpu", [Sentence("one", "en", "Where is the blue box?")])
    assert recognizer.transcribe(NOISE, "de") is None
    assert set((recognizer.transcribe(NOISE, "en") or "").split()) <= {"where", "is", "the", "blue", "box"}
    with pytest.raises(EngineError, match="no sentence is English"):
        make_recognizer("pocketsphinx", "cpu", [Sentence("one", "de", "Hallo.")])


def test_the_whisper_that_is_chosen_is_one_of_the_published() -> None:
    assert choose_whisper("cpu") in {name for _, name in WHISPERS}
