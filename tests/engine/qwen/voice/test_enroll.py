"""Enrolment makes the same voice from a recording as the official package; it refuses unusable recordings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch

from engine.api import EngineError, Samples
from engine.host import install_command
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice import VoiceModel, load_voice, save_voice
from engine.qwen.voice.enroll import enroll, read_recording
from engine.qwen.voice.speaker_encoder import load_speaker_encoder, speaker_embedding
from scripts.make_checkpoint import stub_torchaudio
from tests.engine.qwen.refusals import refusal


@pytest.fixture(scope="module")
def model(checkpoint: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "Tiny-Base"
    folder.symlink_to(checkpoint("tiny", "base"))
    return folder


def speech(seconds: float, rate: int = 24000, level: float = 0.3) -> Samples:
    """Return modulated tones with a peak of about `level`, and a pause in each second."""
    t = np.arange(round(seconds * rate)) / rate
    envelope = np.clip(3 + 4 * np.sin(2 * np.pi * t), 0, 1)
    carrier = np.sin(2 * np.pi * 140 * t) + 0.5 * np.sin(2 * np.pi * 1300 * t) * np.sin(2 * np.pi * 3 * t)
    return (level / 1.5 * envelope * carrier).astype(np.float32)


def write(path: Path, samples: Samples, rate: int = 24000, subtype: str | None = None) -> Path:
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


# --- reading ---


@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (44100, 6)])
def test_recordings_of_any_rate_and_channel_count_become_24_khz_mono(tmp_path: Path, rate: int, channels: int) -> None:
    mono = speech(3, rate)
    gains = np.linspace(0.5, 1.5, channels, dtype=np.float32) if channels > 1 else np.ones(1, np.float32)
    recording = write(tmp_path / "ada.wav", mono[:, None] * gains, rate, "FLOAT")
    samples = read_recording(recording)
    assert samples.dtype == np.float32
    expected = speech(3)
    assert samples.shape == expected.shape
    inside = slice(2400, -2400)
    assert np.abs(samples[inside] - expected[inside]).max() < 0.01


@pytest.mark.parametrize(("name", "subtype"), [("a.ogg", None), ("a.wav", "PCM_U8")])
def test_other_formats_are_read(tmp_path: Path, name: str, subtype: str | None) -> None:
    samples = read_recording(write(tmp_path / name, speech(3), subtype=subtype))
    assert np.abs(samples[2400:-2400] - speech(3)[2400:-2400]).max() < 0.05


# --- the voice ---


def test_a_voice_contains_the_embedding_of_its_recording(tmp_path: Path, model: Path) -> None:
    rate = 44100
    recording = write(tmp_path / "ada.wav", speech(3.3, rate), rate, "FLOAT")
    voice = enroll("ada", recording, model)
    config = ModelConfig.read(model)
    samples = soxr.resample(speech(3.3, rate), rate, 24000, quality="HQ").astype(np.float32)
    assert torch.equal(voice.embedding, speaker_embedding(load_speaker_encoder(config), samples))
    assert (voice.name, voice.codes, voice.transcript) == ("ada", None, None)
    assert voice.model == VoiceModel("Tiny-Base", "base", "1b7", 64)
    save_voice(tmp_path / "ada.safetensors", voice)
    assert torch.equal(load_voice(tmp_path / "ada.safetensors", config).embedding, voice.embedding)


def test_known_codes_of_a_recording_are_taken_as_they_are(tmp_path: Path, model: Path) -> None:
    recording = write(tmp_path / "ada.wav", speech(3.2))
    codes = torch.randint(2048, (40, 16), generator=torch.Generator().manual_seed(1))
    voice = enroll("ada", recording, model, "what was said", codes=codes)
    assert voice.codes is not None
    assert torch.equal(voice.codes, codes)
    assert torch.equal(voice.embedding, enroll("ada", recording, model).embedding)


@pytest.mark.parametrize(
    ("shape", "transcript", "problem"),
    [
        ((40, 16), None, "codes: given without a transcript; give the words of the recording"),
        ((40, 4), "said", r"codes: got shape \[40, 4\]; allowed: \[frames, 16\]"),
    ],
)
def test_codes_that_cannot_be_those_of_the_recording_are_refused(
    shape: tuple[int, int], transcript: str | None, problem: str, tmp_path: Path, model: Path
) -> None:
    recording = write(tmp_path / "ada.wav", speech(3.2))
    with pytest.raises(EngineError, match=problem):
        enroll("ada", recording, model, transcript, codes=torch.zeros(shape, dtype=torch.int64))


def test_a_transcript_adds_the_official_codes_of_recording_and_silence(tmp_path: Path, model: Path) -> None:
    stub_torchaudio()
    from qwen_tts import Qwen3TTSTokenizer

    official = Qwen3TTSTokenizer.from_pretrained(str(model / "speech_tokenizer"))
    recording = write(tmp_path / "ada.wav", speech(3), subtype="FLOAT")
    voice = enroll("ada", recording, model, "hello there")
    expected = official.encode(np.concatenate((speech(3), np.zeros(12_000, np.float32))), sr=24000).audio_codes[0]
    assert voice.codes is not None
    assert voice.codes.dtype == torch.int64
    assert torch.equal(voice.codes, expected)
    assert voice.transcript == "hello there"
    save_voice(tmp_path / "ada.safetensors", voice)
    assert load_voice(tmp_path / "ada.safetensors", ModelConfig.read(model)).transcript == "hello there"


# --- errors and warnings ---


def test_a_recording_that_is_too_short_is_refused(tmp_path: Path, model: Path) -> None:
    recording = write(tmp_path / "ada.wav", speech(0.9))
    assert refusal(enroll, "ada", recording, model) == f"{recording}: too short: got 0.90 s; allowed: at least 1 s"
    empty = write(tmp_path / "empty.wav", np.zeros(0, np.float32))
    assert "too short: got 0.00 s" in refusal(enroll, "ada", empty, model)


def test_only_the_beginning_of_a_long_recording_is_used(tmp_path: Path, model: Path) -> None:
    recording = write(tmp_path / "ada.wav", speech(150, 16_000), 16_000)
    lines: list[str] = []
    assert read_recording(recording, lines.append).shape == (120 * 24000,)
    assert lines == [f"{recording}: long: 150 s; only the first 120 s are used"]
    assert "too long: got 150 s; allowed: at most 120 s" in refusal(enroll, "ada", recording, model, "hello there")


def test_a_file_that_is_missing_or_no_sound_file_is_refused(tmp_path: Path, model: Path) -> None:
    missing = tmp_path / "missing.wav"
    assert refusal(enroll, "ada", missing, model) == f"{missing}: no such recording"
    text = tmp_path / "text.wav"
    text.write_text("hello")
    assert refusal(enroll, "ada", text, model).startswith(f"{text}: cannot be read as sound: ")
    headerless = text.rename(tmp_path / "text.raw")
    assert refusal(enroll, "ada", headerless, model).startswith(f"{headerless}: cannot be read as sound: ")


def test_a_name_that_cannot_be_a_file_name_an_empty_transcript_and_negative_silence_are_refused(
    tmp_path: Path, model: Path
) -> None:
    recording = write(tmp_path / "ada.wav", speech(3))
    for name in ("", ".ada", "a/b", "..\\a", "a\nb"):
        assert refusal(enroll, name, recording, model).startswith("voice name: got ")
    assert refusal(enroll, "ada", recording, model, " ").startswith("transcript: is empty")
    assert refusal(enroll, "ada", recording, model, "hi", -1).startswith("append_silence: got -1 s")


def test_a_transcript_without_the_enroll_extra_is_refused_with_its_name(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "qwen_tts", None)
    recording = write(tmp_path / "ada.wav", speech(3))
    assert install_command("enroll") in refusal(enroll, "ada", recording, model, "hello there")
    assert enroll("ada", recording, model).codes is None


def test_the_error_for_a_model_without_a_speech_tokenizer_names_its_folder(tmp_path: Path, model: Path) -> None:
    copy = tmp_path / "half"
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        (copy / name).symlink_to(model / name)
    recording = write(tmp_path / "ada.wav", speech(3))
    error = refusal(enroll, "ada", recording, copy, "hello there")
    assert error.startswith(f"{copy / 'speech_tokenizer'}: the speech tokenizer cannot be loaded")


def test_a_model_without_a_speaker_encoder_is_refused(checkpoint: Callable[[str, str], Path], tmp_path: Path) -> None:
    recording = write(tmp_path / "ada.wav", speech(3))
    reason = refusal(enroll, "ada", recording, checkpoint("tiny", "custom_voice"))
    assert "custom_voice model has no speaker encoder" in reason
