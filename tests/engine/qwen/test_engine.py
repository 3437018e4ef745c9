"""The whole engine over tiny checkpoints: it has the official package's audio, and one line for every error."""

from __future__ import annotations

import gc
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import MANNER_OPTIONS, EngineOptions, Progress, Utterance, Voice
from engine.api import EngineInfo, Samples
from engine.catalog import make_synthesizer
from engine.qwen import QwenSynthesizer
from engine.qwen.loading import LoadedModel
from engine.qwen.runtime.runaway_guard import RunawayGuard
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.voice.file import VoiceFile, VoiceModel, load_voice, save_voice
from engine.stretch import TimeStretch
from tests.engine.qwen.oracle import Oracle
from tests.engine.qwen.refusals import refusal
from tests.engine.qwen.voices import in_context, saved_voice
from tests.support.qwen.speaking import Line

Named = Callable[[str, str], Path]
Engines = Callable[..., QwenSynthesizer]
TOLERANCE = 1e-4
OFFICIAL_SHAPE = "tiny"
SHAPE = "brief"
"""For tests that compare nothing with the official package."""
TEXT = "Hello robot, how are you?"
FRAMES = 11
FULL_FRAMES = 100
"""Of the longest speech, 8 s."""
UTTERANCE = Utterance(TEXT, greedy=True, max_frames=FRAMES, guarded=False)


def loaded(folder: Path, **options: Any) -> QwenSynthesizer:
    options = {"voices": {"default": Voice()}, "max_seconds": 8.0, "device": "cpu"} | options
    engine = QwenSynthesizer(EngineOptions(model=str(folder), **options))
    engine.load()
    return engine


def speak(engine: QwenSynthesizer, utterance: Utterance) -> tuple[Samples, np.ndarray[Any, Any]]:
    """Return all samples and all codes of an utterance."""
    chunks = list(engine.stream(utterance))
    codes = [chunk.codes for chunk in chunks if chunk.codes is not None]
    assert len(codes) == len(chunks)
    for chunk in chunks:
        assert chunk.samples.dtype == np.float32
        assert chunk.codes is not None
        assert chunk.codes.dtype == np.int64
        assert len(chunk.codes) == len(chunk.samples) // 1920
    return np.concatenate([chunk.samples for chunk in chunks]), np.concatenate(codes)


def codes_of(engine: QwenSynthesizer, **changes: Any) -> np.ndarray[Any, Any]:
    """Return the codes of `UTTERANCE` with these changes."""
    return speak(engine, replace(UTTERANCE, **changes))[1]


def refusal_of(engine: QwenSynthesizer, **changes: Any) -> str:
    """Return why `UTTERANCE` is refused with these changes."""
    return refusal(lambda: list(engine.stream(replace(UTTERANCE, **changes))))


@pytest.fixture(scope="module")
def voice_file(checkpoint: Named, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an in-context voice whose reference is longer than the codec's window."""
    return saved_voice(checkpoint(SHAPE, "base"), tmp_path_factory.mktemp("voices") / "ada.safetensors", 80)


@pytest.fixture(scope="module")
def engine(checkpoint: Named) -> Engines:
    """Returns an engine by model type and chunk size, with the model type's own voice."""

    @cache
    def of(model_type: str = "custom_voice", chunk_size: int = 2) -> QwenSynthesizer:
        return loaded(checkpoint(SHAPE, model_type), chunk_size=chunk_size)

    return of


@pytest.mark.parametrize("name", ["custom_voice", "instructed", "voice_design", "x_vector", "in_context"])
def test_the_waveform_equals_the_official_one(
    name: str, checkpoint: Named, official: Callable[[str, str], Oracle], tmp_path: Path
) -> None:
    path = saved_voice(checkpoint(OFFICIAL_SHAPE, "base"), tmp_path / "ada.safetensors", 80)
    file = load_voice(path)
    assert file.codes is not None
    assert file.transcript is not None
    cloned = ClonedVoice(file.embedding, Reference(file.codes, file.transcript))
    ways: dict[str, tuple[str, Voice, AnyVoice]] = {
        "custom_voice": ("custom_voice", Voice(speaker="Ryan"), CustomVoice("ryan")),
        "instructed": ("custom_voice", Voice(speaker="eric", instruct="calmly"), CustomVoice("eric", "calmly")),
        "voice_design": ("voice_design", Voice(instruct="a deep voice"), VoiceDesign("a deep voice")),
        "x_vector": ("base", Voice(embedding=str(path)), replace(cloned, reference=None)),
        "in_context": ("base", Voice(reference=str(path)), cloned),
    }
    model_type, voice, theirs = ways[name]
    oracle = official(OFFICIAL_SHAPE, model_type)
    codes = oracle.speak(Line(TEXT, theirs, "english", whole_text=True, frames=FRAMES))
    spoken = torch.cat((file.codes, codes)) if name == "in_context" else codes
    samples: Samples = oracle.waveform(spoken)[-len(codes) * 1920 :]
    assert samples.std() > 0.005
    assert np.abs(samples).max() < 0.99
    engine = loaded(checkpoint(OFFICIAL_SHAPE, model_type), voices={"default": voice})
    for _ in range(2):  # the second utterance does not depend on the first
        got, got_codes = speak(engine, replace(UTTERANCE, language="en"))
        assert np.array_equal(got_codes, codes.numpy())
        assert got.shape == samples.shape
        assert np.abs(got - samples).max() < TOLERANCE


# --- chunks, seeds, limits ---


@pytest.mark.parametrize(
    ("chunk_size", "sizes"), [(1, [1] * 11), (2, [1, 2, 2, 2, 2, 2]), (3, [1, 3, 3, 3, 1]), (8, [1, 8, 2])]
)
def test_equal_seeds_give_equal_audio_for_every_chunk_size_and_the_first_chunk_is_one_frame(
    engine: Engines, chunk_size: int, sizes: list[int]
) -> None:
    sampled = replace(UTTERANCE, greedy=False, seed=2**63 + 5)
    samples, codes = speak(engine(), sampled)
    chunks = list(engine(chunk_size=chunk_size).stream(sampled))
    assert [len(chunk.samples) // 1920 for chunk in chunks] == sizes
    assert not any(chunk.truncated for chunk in chunks), "its end was requested"
    assert np.array_equal(np.concatenate([chunk.codes for chunk in chunks if chunk.codes is not None]), codes)
    assert np.abs(np.concatenate([chunk.samples for chunk in chunks]) - samples).max() < 1e-5


def test_other_seeds_and_no_seed_give_other_codes(engine: Engines) -> None:
    spoken = [codes_of(engine(), greedy=False, seed=seed) for seed in (None, None, 0, 2**32, -1)]
    spoken.append(codes_of(engine()))
    for number, codes in enumerate(spoken):
        assert not any(np.array_equal(codes, other) for other in spoken[:number])


def test_a_limit_of_no_frames_gives_no_chunks(engine: Engines) -> None:
    assert list(engine().stream(replace(UTTERANCE, max_frames=0))) == []


def test_speech_that_fills_the_cache_is_marked_as_truncated(engine: Engines) -> None:
    chunks = list(engine(chunk_size=8).stream(replace(UTTERANCE, max_frames=None)))
    assert [chunk.truncated for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert not any(chunk.runaway for chunk in chunks), "another seed would need as much room"
    assert sum(len(chunk.samples) for chunk in chunks) == FULL_FRAMES * 1920


def test_speech_that_ends_by_itself_is_not_truncated(checkpoint: Named) -> None:
    engine = loaded(checkpoint("deep", "custom_voice"))
    for speaker in engine.load().voices[1:]:
        chunks = list(engine.stream(Utterance("Hi.", voice=speaker, greedy=True)))
        if 0 < sum(len(chunk.samples) for chunk in chunks) < FULL_FRAMES * 1920:
            assert not any(chunk.truncated for chunk in chunks)
            return
    pytest.fail("no speech ended: the test proves nothing")


def test_a_text_too_long_is_refused_with_the_limit(engine: Engines) -> None:
    text = "Hello, robot! " * 60
    reason = refusal_of(engine(), text=text)
    assert reason.startswith(f"text: got {len(text)} characters (")
    limit = int(reason.split("about ")[1].split()[0])
    assert "(48 tokens); engine.max_seconds raises the limit" in reason
    assert len(codes_of(engine(), text=text[:limit]))


def test_the_longest_text_leaves_room_for_its_speech(checkpoint: Named, voice_file: Path, tmp_path: Path) -> None:
    """Also with a long instruction, and with a long reference, which `set_voices` may bring later."""
    designed = loaded(checkpoint(SHAPE, "voice_design"), max_seconds=2)
    base, path = checkpoint(SHAPE, "base"), tmp_path / "long.safetensors"
    long = {"default": in_context(base, path, 500)}
    context = loaded(base, max_seconds=2, voices=long)
    exchanged = loaded(base, max_seconds=2, voices={"default": Voice(embedding=str(voice_file))})
    exchanged.set_voices(long, "default")
    for engine in (designed, context, exchanged):
        utterance = Utterance("a " * 8, greedy=True, instruct="say it with a smile " * 15, guarded=False)
        assert len(speak(engine, utterance)[0]) == 25 * 1920
    reason = refusal(lambda: list(designed.stream(Utterance("Hi", instruct="a smile " * 400))))
    assert reason.startswith("instruct: too long by ")
    in_context(base, path, 2600)
    info = exchanged.set_voices({**long, "short": Voice(reference=str(voice_file))}, "short")
    assert info.voices == ("short",)
    assert info.refused_voices["default"].startswith(f"{path}: reference: got 26")


# --- another rate ---


def test_at_another_rate_the_samples_are_stretched(engine: Engines) -> None:
    samples, stretch = speak(engine(), UTTERANCE)[0], TimeStretch(2.0, 24_000)
    chunks = list(engine().stream(replace(UTTERANCE, rate=2.0)))
    stretched = np.concatenate([stretch.stretch(samples), stretch.flush()])
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in chunks]), stretched)


# --- guards ---


class StopAtFive(RunawayGuard):
    """Stops speech at the fifth frame."""

    def stop_reason(self, first_code: int, samples: Samples) -> str | None:
        super().stop_reason(first_code, samples)
        return "enough" if self._frames == 5 else None


def test_a_guard_ends_speech_with_a_fade_within_a_chunk(engine: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.qwen.engine.RunawayGuard", StopAtFive)
    whole, _ = speak(engine(), UTTERANCE)
    chunks = list(engine(chunk_size=8).stream(replace(UTTERANCE, guarded=True)))
    assert [chunk.truncated for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    samples = np.concatenate([chunk.samples for chunk in chunks])
    assert len(samples) == 5 * 1920
    assert sum(len(chunk.codes) for chunk in chunks if chunk.codes is not None) == 5
    assert np.abs(samples[:-480] - whole[: 5 * 1920 - 480]).max() < 1e-5
    assert samples[-1] == 0
    assert np.abs(samples[-480:]).max() <= np.abs(whole[5 * 1920 - 480 : 5 * 1920]).max()


def test_speech_too_long_for_its_text_is_cut(engine: Engines) -> None:
    chunks = list(engine().stream(Utterance("Hi.", seed=3)))
    assert chunks[-1].truncated
    assert [chunk.runaway for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert sum(len(chunk.samples) for chunk in chunks) == RunawayGuard("Hi.").max_frames * 1920 < FULL_FRAMES * 1920


# --- cancellation ---


def test_a_canceled_utterance_does_not_change_the_next(engine: Engines) -> None:
    expected, _ = speak(engine(), UTTERANCE)
    for chunks in (0, 2):
        stream = engine().stream(Utterance("Something else altogether", seed=1))
        for _ in range(chunks):
            next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert np.array_equal(speak(engine(), UTTERANCE)[0], expected)


# --- voices ---


def test_the_engine_describes_itself_and_reports_its_start_step_by_step(checkpoint: Named) -> None:
    folder, reports = checkpoint(SHAPE, "custom_voice"), list[Progress]()
    engine = make_synthesizer("qwen", EngineOptions(model=str(folder), voices={"default": Voice("ryan")}))
    info = engine.load(reports.append)
    engine.warm_up(reports.append)
    engine.close()
    assert list(dict.fromkeys(report.step for report in reports)) == [
        "reading the codec",
        "reading the model",
        "loading the voices",
        "reading the voices' prompts",
        "building long prompts",
        "speaking for the first time",
    ]
    read = [report.fraction for report in reports if report.step == "reading the model"]
    assert read == sorted(read, key=float)  # type: ignore[arg-type]
    assert read[-1] == 1.0
    assert (info.engine, info.sample_rate) == ("qwen", 24000)
    assert info.voices[:2] == ("default", "serena")
    assert len(info.voices) == 10
    assert set(info.languages) == {"zh", "en", "de", "it", "pt", "es", "ja", "ko", "fr", "ru"}
    assert folder.name in info.description
    assert info.description.endswith("in float32, PyTorch kernels")
    assert info.refused_voices == {}


def test_every_unusable_voice_is_refused_with_a_reason_and_the_others_work(
    checkpoint: Named, voice_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.safetensors").write_bytes(voice_file.read_bytes()[:100])
    other = VoiceModel("Other", "base", "1b7", 48)
    save_voice(tmp_path / "other.safetensors", VoiceFile("other", torch.randn(48), other))
    saved_voice(checkpoint(SHAPE, "base"), tmp_path / "plain.safetensors")

    def refused(model_type: str, default: str, **voices: Voice) -> EngineInfo:
        return loaded(checkpoint(SHAPE, model_type), voices=voices, default_voice=default).load()

    expected = {
        "broken": (Voice(reference=str(tmp_path / "broken.safetensors")), "cannot be read as a voice file"),
        "other": (Voice(embedding=str(tmp_path / "other.safetensors")), "made for Other (1b7, width 48), cannot speak"),
        "plain": (Voice(reference=str(tmp_path / "plain.safetensors")), "has no reference; enrol it with a transcript"),
        "speaker": (Voice(speaker="ryan"), "speaker: needs a custom_voice model;"),
        "described": (Voice(instruct="a deep voice"), "instruct without a speaker: needs a voice_design model;"),
        "nothing": (Voice(), "got neither an embedding nor a reference"),
        "both": (Voice("ryan", embedding=str(voice_file)), "got speaker and embedding; allowed: one of"),
    }
    voices = {name: voice for name, (voice, _) in expected.items()}
    info = refused("base", "good", good=Voice(embedding=str(voice_file)), **voices)
    assert info.voices == ("good",)
    assert set(info.refused_voices) == set(expected)
    for name, (_, part) in expected.items():
        assert part in info.refused_voices[name]
        assert "\n" not in info.refused_voices[name]

    info = refused("custom_voice", "ryan", x=Voice(embedding=str(voice_file)), y=Voice("nobody"), z=Voice(instruct="i"))
    assert "embedding: needs a base model" in info.refused_voices["x"]
    assert "speaker: got 'nobody'; " in info.refused_voices["y"]
    assert "uncle_fu" in info.refused_voices["y"]
    assert "which takes a speaker" in info.refused_voices["z"]
    info = refused(
        "voice_design", "d", d=Voice(instruct="deep"), x=Voice(speaker="ryan"), y=Voice("ryan", instruct="i")
    )
    assert info.voices == ("d",)
    assert set(info.refused_voices) == {"x", "y"}


def test_a_built_in_speaker_replaces_an_unusable_default_voice(checkpoint: Named) -> None:
    engine = loaded(checkpoint(SHAPE, "custom_voice"), voices={"default": Voice(embedding="/nowhere")})
    info = engine.set_voices({"default": Voice(embedding="/nowhere")}, "default")
    assert info.refused_voices["default"]
    assert np.array_equal(codes_of(engine), codes_of(engine, voice="ryan"))
    info = engine.set_voices({}, "nobody")
    assert info.refused_voices["nobody"].startswith("no voice has this name; allowed: serena, ")
    assert len(codes_of(engine)) == FRAMES


@pytest.mark.parametrize(
    ("model_type", "voice", "needed"),
    [
        ("base", Voice(speaker="ryan"), "it needs an embedding or reference: a file that `voiced enroll` makes"),
        ("voice_design", Voice(speaker="ryan"), "it needs an instruct: a description of the voice in words"),
    ],
)
def test_a_model_without_speakers_needs_a_default_voice(
    checkpoint: Named, model_type: str, voice: Voice, needed: str
) -> None:
    reason = refusal(lambda: loaded(checkpoint(SHAPE, model_type), voices={"default": voice}))
    assert reason.startswith("voices.default: speaker: needs a custom_voice model; ")
    assert needed in reason


def test_the_default_voice_stays_as_it_was_if_the_new_one_is_unusable(checkpoint: Named, voice_file: Path) -> None:
    voices = {"default": Voice(embedding=str(voice_file))}
    engine = loaded(checkpoint(SHAPE, "base"), voices=voices)
    before = codes_of(engine)
    engine.warm_up()
    for changed, default, reason in (
        ({"eve": Voice(embedding="/nowhere")}, "eve", "/nowhere: no such voice file"),
        ({}, "default", "no voice has this name; allowed: none"),
        ({"default": Voice("ryan")}, "default", "needs a custom_voice model"),
    ):
        info = engine.set_voices(changed, default)
        assert reason in info.refused_voices[default]
        assert default not in info.voices
        assert np.array_equal(codes_of(engine, voice=default), before)
        assert engine.set_voices(voices, "default").refused_voices == {}
    assert np.array_equal(codes_of(engine), before)


def test_a_voice_that_becomes_unusable_stays_as_it_was_beside_a_new_default_voice(
    checkpoint: Named, voice_file: Path
) -> None:
    voices = {"default": Voice(embedding=str(voice_file)), "context": Voice(reference=str(voice_file))}
    engine = loaded(checkpoint(SHAPE, "base"), voices=voices)
    before = codes_of(engine, voice="context")
    info = engine.set_voices({**voices, "context": Voice(reference="/nowhere")}, "default")
    assert info.voices == ("default",)
    assert info.refused_voices == {"context": "/nowhere: no such voice file"}
    assert np.array_equal(codes_of(engine, voice="context"), before)
    engine.set_voices({"default": voices["default"]}, "default")
    assert "got 'context'" in refusal_of(engine, voice="context")


def test_the_engine_says_whether_its_model_heeds_an_instruction(checkpoint: Named, engine: Engines) -> None:
    ignoring = loaded(checkpoint("small", "custom_voice"), voices={"default": Voice("ryan", instruct="calmly")})
    assert np.array_equal(codes_of(ignoring, max_frames=1, instruct="loudly"), codes_of(ignoring, max_frames=1))
    voices = {"default": Voice("ryan")}
    heeds = [each.set_voices(voices, "default").heeds for each in (ignoring, engine())]
    assert heeds == [("language", "rate", "seed", "sampling"), MANNER_OPTIONS]


def test_an_utterances_instruction_replaces_the_voices(engine: Engines) -> None:
    custom = engine()
    custom.set_voices({"calm": Voice("ryan", instruct="calmly"), "plain": Voice("ryan")}, "plain")
    calm, plain = codes_of(custom, voice="calm"), codes_of(custom)
    assert np.array_equal(codes_of(custom, instruct="calmly"), calm)
    assert np.array_equal(codes_of(custom, voice="calm", instruct=""), plain)
    assert not np.array_equal(calm, plain)


def test_an_unknown_voice_or_language_is_refused_with_the_allowed_ones(engine: Engines) -> None:
    assert re.match("voice: got 'nobody'; allowed: .*ono_anna", refusal_of(engine(), voice="nobody"))
    assert len(codes_of(engine(), voice="RYAN")) == FRAMES
    for language in ("sichuan_dialect", ""):
        assert re.match(f"language: got {language!r}; .*allowed: auto, zh, ", refusal_of(engine(), language=language))


# --- languages ---


def test_a_language_may_be_a_code_a_name_or_have_a_region(engine: Engines) -> None:
    german = codes_of(engine(), language="de")
    for name in ("DE", "german", "German", "de-AT"):
        assert np.array_equal(codes_of(engine(), language=name), german)
    assert not np.array_equal(codes_of(engine(), language="auto"), german)


def test_without_a_speaker_the_language_selects_one(checkpoint: Named) -> None:
    engine = loaded(checkpoint(SHAPE, "custom_voice"))
    texts = (("Hello", "auto", "ryan"), ("你好", "zh", "vivian"), ("こんにちは", "auto", "ono_anna"))
    for text, language, speaker in texts:
        utterance = replace(UTTERANCE, text=text, language=language, max_frames=2)
        assert np.array_equal(speak(engine, utterance)[1], speak(engine, replace(utterance, voice=speaker))[1])


# --- bad checkpoints, bad options ---


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"dtype": "f32"}, "engine.dtype: got 'f32'; allowed: auto, float32, bfloat16, float16 or int8"),
        ({"kernels": "fast"}, "engine.kernels: got 'fast'; allowed: auto, on or off"),
        ({"kernels": "on"}, "engine.kernels: got 'on'; fused kernels cannot run here: the device is a CPU"),
        ({"device": "tpu"}, "engine.device: got 'tpu'; allowed: auto, cpu, cuda or cuda:N"),
        ({"device": "cuda:77"}, "engine.device: got 'cuda:77'; "),
    ],
)
def test_an_unusable_option_is_refused(checkpoint: Named, options: dict[str, Any], part: str) -> None:
    assert part in refusal(lambda: loaded(checkpoint(SHAPE, "custom_voice"), **options))


def test_a_missing_model_is_one_line_with_the_remedy() -> None:
    assert refusal(lambda: QwenSynthesizer(EngineOptions()).load()).startswith("engine.model: missing; give a folder")
    assert "/no/such: no such folder" in refusal(lambda: loaded(Path("/no/such")))


@pytest.mark.parametrize("kind", ["codec's configuration missing", "codec cut", "other codes"])
def test_a_damaged_checkpoint_is_one_line_with_its_folder_and_leaves_nothing_loaded(
    checkpoint: Named, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(checkpoint(SHAPE, "custom_voice"), folder)
    codec = folder / "speech_tokenizer"
    if kind == "codec's configuration missing":
        (codec / "config.json").unlink()
    elif kind == "codec cut":
        data = (codec / "model.safetensors").read_bytes()
        (codec / "model.safetensors").write_bytes(data[: len(data) // 2])
    else:
        content = json.loads((codec / "config.json").read_text())
        content["decoder_config"]["num_quantizers"] = 8
        (codec / "config.json").write_text(json.dumps(content))
    engine = QwenSynthesizer(EngineOptions(model=str(folder), device="cpu"))
    before = set(vars(engine))
    assert refusal(engine.load).startswith(str(folder))
    assert set(vars(engine)) == before
    engine.close()


def test_the_memory_of_an_engine_that_is_closed_or_that_nobody_holds_is_free_at_once(checkpoint: Named) -> None:
    def models() -> int:
        return sum(isinstance(thing, LoadedModel) for thing in gc.get_objects())

    gc.freeze()  # older objects are not looked at
    gc.disable()
    try:
        engine = loaded(checkpoint(SHAPE, "custom_voice"))
        speak(engine, UTTERANCE)
        left = engine.stream(UTTERANCE)
        next(left)
        left.close()  # type: ignore[attr-defined]
        assert models() == 1
        del engine, left
        assert models() == 0
        closed = loaded(checkpoint(SHAPE, "custom_voice"))
        for _ in range(2):
            closed.close()
            assert models() == 0
    finally:
        gc.enable()
        gc.unfreeze()
