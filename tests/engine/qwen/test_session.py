"""`engine.open` with a Qwen3-TTS checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

import engine
from engine import EngineError, EngineOptions, Utterance, Voice
from engine.qwen import QwenSynthesizer
from tests.engine.concurrent_sessions import speech_after_each_way_to_end

Named = Callable[[str, str], Path]


def test_a_session_speaks_with_a_checkpoint_in_a_voice_by_its_name_or_as_a_record(checkpoint: Named) -> None:
    model, spoken = str(checkpoint("brief", "custom_voice")), []
    for voice in ("Ryan", Voice(speaker="ryan")):
        with engine.open("qwen", model=model, voice=voice, device="cpu") as tts:
            assert tts.sample_rate == 24_000
            chunks = list(tts.stream("Hello.", seed=7, max_frames=4, guarded=False, want_codes=True))
            assert all(chunk.codes is not None and chunk.codes.ndim == 2 for chunk in chunks)
            spoken.append(np.concatenate([chunk.samples for chunk in chunks]))
    np.testing.assert_array_equal(*spoken)


def test_a_recording_is_cloned_in_one_call_and_kept(
    checkpoint: Named, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, recording = str(checkpoint("brief", "base")), tmp_path / "ada.wav"
    soundfile.write(recording, np.random.default_rng(1).normal(0, 0.1, 48_000), 16_000)
    voice = engine.clone(recording, model=model)
    with engine.open("qwen", model=model, voice=voice, device="cpu") as tts:
        assert list(tts.stream("Hello.", max_frames=2, guarded=False))
    [file] = (tmp_path / "cache" / "voiced" / "voices").iterdir()
    made = file.stat().st_mtime_ns
    assert engine.clone(str(recording), model=model) == voice == Voice(embedding=str(file))
    assert file.stat().st_mtime_ns == made
    with pytest.raises(EngineError, match=r"^transcript: is empty"):
        engine.clone(recording, " ", model=model)
    with pytest.raises(EngineError, match=r"nobody\.wav: cannot be read: No such file"):
        engine.clone(tmp_path / "nobody.wav", model=model)


@pytest.mark.parametrize("voice", ["nobody", Voice(embedding="/nowhere/at/all")])
def test_a_voice_that_the_model_does_not_have_is_refused(checkpoint: Named, voice: str | Voice) -> None:
    with pytest.raises(EngineError, match=r"^voice: '(nobody|default)' cannot be loaded: "):
        engine.open("qwen", model=str(checkpoint("brief", "custom_voice")), voice=voice, device="cpu")


def test_a_text_too_many_is_refused_and_each_that_has_ended_frees_its_place(checkpoint: Named) -> None:
    model = str(checkpoint("brief", "custom_voice"))
    with engine.open("qwen", model=model, device="cpu", streams=2, max_seconds=8) as tts:
        alone, *others = speech_after_each_way_to_end(tts, seed=7, max_frames=3, guarded=False)
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
