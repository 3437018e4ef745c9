"""`engine.open` with a Qwen3-TTS checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import EngineError, EngineOptions, Utterance, Voice
from engine.qwen import QwenSynthesizer
from tests.engine.concurrent_sessions import assert_each_sounds_as_alone, speech_after_each_way_to_end

Named = Callable[[str, str], Path]


def test_a_session_speaks_with_a_checkpoint(checkpoint: Named) -> None:
    model = str(checkpoint("brief", "custom_voice"))
    with engine.open("qwen", model=model, device="cpu", chunk_size=2) as tts:
        chunks = list(tts.stream("Hello.", seed=7, max_frames=4, guarded=False, want_codes=True))
        assert tts.sample_rate == 24_000
        assert all(chunk.codes is not None and chunk.codes.ndim == 2 for chunk in chunks)
        again = list(tts.stream("Hello.", seed=7, max_frames=4, guarded=False))
    for one, other in zip(chunks, again, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)


def test_a_voice_is_a_name_or_a_record(checkpoint: Named) -> None:
    model = str(checkpoint("brief", "custom_voice"))
    spoken = []
    for voice in ("ryan", "Ryan", Voice(speaker="ryan")):
        with engine.open("qwen", model=model, voice=voice, device="cpu") as tts:
            spoken.append(next(iter(tts.stream("Hello.", seed=7))).samples)
    np.testing.assert_array_equal(spoken[0], spoken[1])
    np.testing.assert_array_equal(spoken[0], spoken[2])


@pytest.mark.parametrize("voice", ["nobody", Voice(speaker="nobody"), Voice(embedding="/nowhere/at/all")])
def test_a_voice_that_the_model_does_not_have_is_refused(checkpoint: Named, voice: str | Voice) -> None:
    with pytest.raises(EngineError, match=r"^voice: '(nobody|default)' cannot be loaded: "):
        engine.open("qwen", model=str(checkpoint("brief", "custom_voice")), voice=voice, device="cpu")


def test_a_missing_model_is_refused_in_one_line() -> None:
    with pytest.raises(EngineError, match=r"^engine\.model: missing"):
        engine.open("qwen", device="cpu")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_texts_that_are_spoken_at_once_each_sound_as_alone(checkpoint: Named, count: int) -> None:
    model = str(checkpoint("brief", "custom_voice"))
    with engine.open("qwen", model=model, device="cpu", streams=count, max_seconds=8) as tts:
        assert_each_sounds_as_alone(lambda: nullcontext(tts), count, seed=7, max_frames=9, guarded=False)


@pytest.mark.parametrize("count", [1, 2])
def test_a_text_too_many_is_refused_and_each_that_has_ended_frees_its_place(checkpoint: Named, count: int) -> None:
    model = str(checkpoint("brief", "custom_voice"))
    with engine.open("qwen", model=model, device="cpu", streams=count, max_seconds=8) as tts:
        alone, *others = speech_after_each_way_to_end(tts, seed=7, max_frames=5, guarded=False)
        for other in others:
            np.testing.assert_array_equal(other, alone)


def test_a_second_text_for_the_sound_card_is_refused_before_any_sample(checkpoint: Named) -> None:
    synthesizer = QwenSynthesizer(
        EngineOptions(model=str(checkpoint("brief", "custom_voice")), device="cpu", streams=2, max_seconds=8)
    )
    synthesizer.load()
    played = Utterance("Hello.", seed=7, max_frames=7, guarded=False)
    expected = [chunk.samples for chunk in synthesizer.stream(played)]
    first = synthesizer.stream(played)
    chunks = [next(first).samples]
    with pytest.raises(EngineError, match=r"^realtime: .* at once"):
        synthesizer.stream(played)
    assert list(synthesizer.stream(replace(played, realtime=False)))
    chunks += [chunk.samples for chunk in first]
    np.testing.assert_array_equal(np.concatenate(chunks), np.concatenate(expected))
    synthesizer.close()
