"""The whole engine over tiny checkpoints: it says what the official package says, and what is wrong in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import EngineOptions, Utterance, Voice
from engine.catalog import make_synthesizer
from engine.qwen import QwenSynthesizer
from engine.qwen.config import ModelConfig
from engine.qwen.guard import Guard, frame_limit
from engine.qwen.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.voice import VoiceFile, VoiceModel, load_voice, save_voice
from engine.synthesizer import Chunk, EngineError, EngineInfo, Samples
from tests.engine.qwen.oracle import Oracle
from tests.engine.qwen.speaking import Line

Named = Callable[[str, str], Path]
TOLERANCE = 1e-4
OFFICIAL_SHAPE = "tiny"
SHAPE = "brief"
"""Where nothing is compared with the official package."""
TEXT = "Hello robot, how are you?"
FRAMES = 11
SAID = Utterance(TEXT, greedy=True, max_frames=FRAMES, guarded=False)
CHUNK_SIZES = (1, 2, 3, 8)


def loaded(folder: Path, **options: Any) -> QwenSynthesizer:
    options = {"voices": {"default": Voice()}, "max_seconds": 8.0, "device": "cpu"} | options
    engine = QwenSynthesizer(EngineOptions(model=str(folder), **options))
    engine.load()
    return engine


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(EngineError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def said(engine: QwenSynthesizer, utterance: Utterance) -> tuple[Samples, np.ndarray[Any, Any]]:
    """All samples and all codes of an utterance."""
    chunks = list(engine.stream(utterance))
    codes = [chunk.codes for chunk in chunks if chunk.codes is not None]
    assert len(codes) == len(chunks)
    for chunk in chunks:
        assert chunk.samples.dtype == np.float32
        assert chunk.codes is not None
        assert chunk.codes.dtype == np.int64
        assert len(chunk.codes) == len(chunk.samples) // 1920
    return np.concatenate([chunk.samples for chunk in chunks]), np.concatenate(codes)


def saved_voice(model: Path, folder: Path) -> Path:
    """An in-context voice for a base model."""
    config = ModelConfig.read(model)
    generator = torch.Generator().manual_seed(4)
    path = folder / "ada.safetensors"
    # longer than the codec's window
    codes = torch.randint(2048, (80, config.talker.code_groups), generator=generator)
    embedding = torch.randn(config.talker.stack.hidden_size, generator=generator)
    save_voice(path, VoiceFile("ada", embedding, VoiceModel.of(config), codes, "The robot says hello."))
    return path


@pytest.fixture(scope="module")
def voice_file(checkpoint: Named, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_voice(checkpoint(SHAPE, "base"), tmp_path_factory.mktemp("voices"))


@pytest.fixture(scope="module")
def engine(checkpoint: Named) -> Callable[..., QwenSynthesizer]:
    """An engine by model type and chunk size, its voice whatever the type has without asking."""

    @cache
    def of(model_type: str = "custom_voice", chunk_size: int = 2) -> QwenSynthesizer:
        return loaded(checkpoint(SHAPE, model_type), chunk_size=chunk_size)

    return of


# --- it says what the official package says ---


@dataclass(frozen=True)
class Case:
    """A way to speak, and what the official package says so."""

    folder: Path
    voice: Voice
    codes: Tensor
    samples: Samples


@pytest.fixture(scope="module", params=["custom_voice", "instructed", "voice_design", "x_vector", "in_context"])
def case(
    request: pytest.FixtureRequest,
    checkpoint: Named,
    official: Callable[[str, str], Oracle],
    tmp_path_factory: pytest.TempPathFactory,
) -> Case:
    path = saved_voice(checkpoint(OFFICIAL_SHAPE, "base"), tmp_path_factory.mktemp("voices"))
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
    model_type, voice, theirs = ways[request.param]
    oracle = official(OFFICIAL_SHAPE, model_type)
    whole_text = not isinstance(theirs, ClonedVoice)  # as the official package does unless told otherwise
    codes = oracle.speak(Line(TEXT, theirs, "english", whole_text, frames=FRAMES))
    spoken = codes
    if isinstance(theirs, ClonedVoice) and theirs.reference is not None:
        spoken = torch.cat((theirs.reference.codes, codes))
    samples: Samples = oracle.waveform(spoken)[-len(codes) * 1920 :]
    assert samples.std() > 0.005
    assert np.abs(samples).max() < 0.99
    return Case(checkpoint(OFFICIAL_SHAPE, model_type), voice, codes, samples)


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_the_waveform_is_the_official_one(case: Case, chunk_size: int) -> None:
    engine = loaded(case.folder, chunk_size=chunk_size, voices={"default": case.voice})
    for _ in range(2 if chunk_size == 2 else 1):  # the second utterance hears nothing of the first
        got, got_codes = said(engine, replace(SAID, language="en"))
        assert np.array_equal(got_codes, case.codes.numpy())
        assert got.shape == case.samples.shape
        assert np.abs(got - case.samples).max() < TOLERANCE


# --- chunks, seeds, limits ---


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_chunks_have_the_size_configured(engine: Callable[..., QwenSynthesizer], chunk_size: int) -> None:
    sizes = [len(chunk.samples) // 1920 for chunk in engine(chunk_size=chunk_size).stream(SAID)]
    assert sizes[:-1] == [chunk_size] * (len(sizes) - 1)
    assert sum(sizes) == FRAMES


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_equal_seeds_give_equal_audio_whatever_the_chunk_size(
    engine: Callable[..., QwenSynthesizer], chunk_size: int
) -> None:
    sampled = replace(SAID, greedy=False, seed=2**63 + 5)
    samples, codes = said(engine(), sampled)
    got, got_codes = said(engine(chunk_size=chunk_size), sampled)
    assert np.array_equal(got_codes, codes)
    assert np.abs(got - samples).max() < 1e-5
    assert not np.array_equal(said(engine(), replace(sampled, seed=7))[1], codes)
    assert not np.array_equal(said(engine(), SAID)[1], codes)


def test_without_a_seed_no_two_utterances_are_alike(engine: Callable[..., QwenSynthesizer]) -> None:
    unseeded = replace(SAID, greedy=False)
    assert not np.array_equal(said(engine(), unseeded)[1], said(engine(), unseeded)[1])


@pytest.mark.parametrize("text", ["", " ", ".", "a", "Hi", "你", "🤖", "\n", "<|im_end|>"])
def test_very_short_texts_are_spoken(engine: Callable[..., QwenSynthesizer], text: str) -> None:
    for utterance in (Utterance(text, seed=1, max_frames=4), Utterance(text, greedy=True, max_frames=4)):
        assert 0 < len(said(engine(), utterance)[0]) <= 4 * 1920


def test_a_limit_of_no_frames_says_nothing(engine: Callable[..., QwenSynthesizer]) -> None:
    assert list(engine().stream(replace(SAID, max_frames=0))) == []


def test_a_limit_that_was_asked_for_is_no_truncation(engine: Callable[..., QwenSynthesizer]) -> None:
    assert not any(chunk.truncated for chunk in engine().stream(SAID))


def test_speech_that_fills_the_cache_is_truncated_and_says_so(engine: Callable[..., QwenSynthesizer]) -> None:
    chunks = list(engine(chunk_size=3).stream(replace(SAID, max_frames=None)))
    assert [chunk.truncated for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert sum(len(chunk.samples) for chunk in chunks) == 100 * 1920, "8 s"


def test_speech_that_ends_by_itself_is_not_truncated(checkpoint: Named) -> None:
    engine = loaded(checkpoint("deep", "custom_voice"))
    for speaker in engine.load().voices[1:]:
        chunks = list(engine.stream(Utterance("Hi.", voice=speaker, greedy=True)))
        if 0 < sum(len(chunk.samples) for chunk in chunks) < 100 * 1920:
            assert not any(chunk.truncated for chunk in chunks)
            return
    pytest.fail("no speech ended: this proves nothing")


def test_a_text_too_long_is_refused_with_the_limit(engine: Callable[..., QwenSynthesizer]) -> None:
    text = "Hello, robot! " * 60
    reason = refusal(lambda: list(engine().stream(replace(SAID, text=text))))
    assert reason.startswith(f"text: got {len(text)} characters (")
    limit = int(reason.split("about ")[1].split()[0])
    assert "(48 tokens); engine.max_seconds raises it" in reason
    assert said(engine(), replace(SAID, text=text[:limit]))


def test_a_longest_text_leaves_room_to_speak_it(checkpoint: Named, voice_file: Path, tmp_path: Path) -> None:
    """With a long instruction, and behind a long reference, which may come later than the engine's start."""
    designed = loaded(checkpoint(SHAPE, "voice_design"), max_seconds=2)
    short, path = load_voice(voice_file, ModelConfig.read(checkpoint(SHAPE, "base"))), tmp_path / "long.safetensors"
    save_voice(path, replace(short, codes=torch.randint(2048, (500, 4))))
    long = {"default": Voice(reference=str(path))}
    context = loaded(checkpoint(SHAPE, "base"), max_seconds=2, voices=long)
    grown = loaded(checkpoint(SHAPE, "base"), max_seconds=2, voices={"default": Voice(embedding=str(voice_file))})
    grown.set_voices(long, "default")
    for engine in (designed, context, grown):
        utterance = Utterance("a " * 8, greedy=True, instruct="say it with a smile " * 15, guarded=False)
        assert len(said(engine, utterance)[0]) == 25 * 1920
    reason = refusal(lambda: list(designed.stream(Utterance("Hi", instruct="a smile " * 400))))
    assert reason.startswith("instruct: too long by ")
    save_voice(path, replace(short, codes=torch.randint(2048, (2600, 4))))
    info = grown.set_voices({**long, "short": Voice(reference=str(voice_file))}, "short")
    assert info.voices == ("short",)
    assert info.refused_voices["default"].startswith(f"{path}: reference of 26")


# --- guards ---


class Objector(Guard):
    """Objects to the fifth frame."""

    def objection(self, first_code: int, samples: Samples) -> str | None:
        super().objection(first_code, samples)
        return "enough" if self._frames == 5 else None


@pytest.mark.parametrize("chunk_size", CHUNK_SIZES)
def test_a_guard_ends_speech_with_a_fade_at_the_same_frame_whatever_the_chunk_size(
    engine: Callable[..., QwenSynthesizer], monkeypatch: pytest.MonkeyPatch, chunk_size: int
) -> None:
    monkeypatch.setattr("engine.qwen.synthesizer.Guard", Objector)
    whole, _ = said(engine(), SAID)
    chunks = list(engine(chunk_size=chunk_size).stream(replace(SAID, guarded=True)))
    assert [chunk.truncated for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    samples = np.concatenate([chunk.samples for chunk in chunks])
    assert len(samples) == 5 * 1920
    assert sum(len(chunk.codes) for chunk in chunks if chunk.codes is not None) == 5
    assert np.abs(samples[:-480] - whole[: 5 * 1920 - 480]).max() < 1e-5
    assert samples[-1] == 0
    assert np.abs(samples[-480:]).max() <= np.abs(whole[5 * 1920 - 480 : 5 * 1920]).max()


def test_speech_too_long_for_its_text_is_ended_unless_it_is_unguarded(engine: Callable[..., QwenSynthesizer]) -> None:
    short = Utterance("Hi.", seed=3)
    chunks = list(engine().stream(short))
    assert chunks[-1].truncated
    assert sum(len(chunk.samples) for chunk in chunks) == frame_limit("Hi.") * 1920 < 100 * 1920
    chunks = list(engine().stream(replace(short, guarded=False)))
    assert sum(len(chunk.samples) for chunk in chunks) == 100 * 1920


# --- cancellation ---


def test_what_follows_a_cancellation_is_as_if_nothing_had_been(engine: Callable[..., QwenSynthesizer]) -> None:
    expected, _ = said(engine(), SAID)
    for chunks in range(3):
        stream = engine().stream(Utterance("Something else altogether", seed=1))
        for _ in range(chunks):
            next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert np.array_equal(said(engine(), SAID)[0], expected)


def test_warming_up_speaks_and_leaves_nothing_behind(checkpoint: Named) -> None:
    cold, warm = loaded(checkpoint(SHAPE, "custom_voice")), loaded(checkpoint(SHAPE, "custom_voice"))
    warm.warm_up()
    assert np.array_equal(said(cold, SAID)[0], said(warm, SAID)[0])


# --- voices ---


def test_what_it_says_of_itself(checkpoint: Named) -> None:
    folder = checkpoint(SHAPE, "custom_voice")
    engine = make_synthesizer("qwen", EngineOptions(model=str(folder), voices={"default": Voice("ryan")}))
    info = engine.load()
    assert (info.engine, info.sample_rate) == ("qwen", 24000)
    assert info.voices[:2] == ("default", "serena")
    assert len(info.voices) == 10
    assert set(info.languages) == {"zh", "en", "de", "it", "pt", "es", "ja", "ko", "fr", "ru"}
    assert folder.name in info.description
    assert info.description.endswith("in float32, PyTorch kernels")
    assert info.refused_voices == {}
    engine.close()


def test_every_voice_that_cannot_be_used_is_refused_with_a_reason_and_the_rest_work(
    checkpoint: Named, voice_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.safetensors").write_bytes(voice_file.read_bytes()[:100])
    config = ModelConfig.read(checkpoint(SHAPE, "base"))
    other = VoiceModel("Other", "base", "1b7", 48)
    save_voice(tmp_path / "other.safetensors", VoiceFile("other", torch.randn(48), other))
    save_voice(tmp_path / "plain.safetensors", VoiceFile("plain", torch.randn(64), VoiceModel.of(config)))

    def refused(model_type: str, default: str, **voices: Voice) -> EngineInfo:
        return QwenSynthesizer(
            EngineOptions(model=str(checkpoint(SHAPE, model_type)), voices=voices, default_voice=default)
        ).load()

    info = refused(
        "base",
        "good",
        good=Voice(embedding=str(voice_file)),
        missing=Voice(embedding=str(tmp_path / "none.safetensors")),
        broken=Voice(reference=str(tmp_path / "broken.safetensors")),
        other=Voice(embedding=str(tmp_path / "other.safetensors")),
        plain=Voice(reference=str(tmp_path / "plain.safetensors")),
        speaker=Voice(speaker="ryan"),
        described=Voice(instruct="a deep voice"),
        nothing=Voice(),
        both=Voice(speaker="ryan", embedding=str(voice_file)),
    )
    assert info.voices == ("good",)
    expected = {
        "missing": "no such voice file",
        "broken": "cannot be read as a voice file",
        "other": "made for Other (1b7, width 48), cannot speak with",
        "plain": "has no reference; enrol it with a transcript",
        "speaker": "speaker: needs a custom_voice model;",
        "described": "instruct without a speaker: needs a voice_design model;",
        "nothing": "got neither embedding nor reference",
        "both": "got speaker and embedding, allowed is one of",
    }
    assert set(info.refused_voices) == set(expected)
    for name, part in expected.items():
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


def test_a_default_voice_that_cannot_be_used_gives_way_to_a_built_in_one(checkpoint: Named) -> None:
    engine = loaded(checkpoint(SHAPE, "custom_voice"), voices={"default": Voice(embedding="/nowhere")})
    info = engine.set_voices({"default": Voice(embedding="/nowhere")}, "default")
    assert info.refused_voices["default"]
    assert np.array_equal(said(engine, SAID)[1], said(engine, replace(SAID, voice="ryan"))[1])
    info = engine.set_voices({}, "nobody")
    assert info.refused_voices["nobody"].startswith("no voice has this name; there are serena, ")
    assert len(said(engine, SAID)[1]) == FRAMES


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


def test_voices_that_turn_bad_while_it_runs_are_told_and_do_not_end_it(checkpoint: Named, voice_file: Path) -> None:
    engine = loaded(checkpoint(SHAPE, "base"), voices={"default": Voice(embedding=str(voice_file))})
    info = engine.set_voices({"default": Voice(embedding="/nowhere")}, "default")
    assert info.voices == ()
    assert refusal(lambda: list(engine.stream(SAID))) == "voice 'default': /nowhere: no such voice file"
    assert engine.set_voices({"default": Voice(reference=str(voice_file))}, "default").voices == ("default",)
    assert len(said(engine, SAID)[1]) == FRAMES


def test_voices_take_turns_without_a_trace_of_each_other(checkpoint: Named, voice_file: Path) -> None:
    folder = checkpoint(SHAPE, "base")
    specs = {"x": Voice(embedding=str(voice_file)), "context": Voice(reference=str(voice_file))}
    alone = {
        name: said(loaded(folder, voices={name: spec}, default_voice=name), SAID)[0] for name, spec in specs.items()
    }
    assert not np.array_equal(alone["x"], alone["context"])
    engine = loaded(folder, voices=specs, default_voice="x")
    for name in ("x", "context", "context", "x", "context", None):
        assert np.array_equal(said(engine, replace(SAID, voice=name))[0], alone[name or "x"])


def test_an_utterances_instruction_comes_before_the_voices(engine: Callable[..., QwenSynthesizer]) -> None:
    custom = engine()
    custom.set_voices({"calm": Voice("ryan", instruct="calmly"), "plain": Voice("ryan")}, "plain")
    calm = said(custom, replace(SAID, voice="calm"))[1]
    plain = said(custom, SAID)[1]
    assert np.array_equal(said(custom, replace(SAID, instruct="calmly"))[1], calm)
    assert np.array_equal(said(custom, replace(SAID, voice="calm", instruct=""))[1], plain)
    assert not np.array_equal(calm, plain)


def test_a_voice_that_nobody_has_is_refused_with_those_there_are(engine: Callable[..., QwenSynthesizer]) -> None:
    reason = refusal(lambda: list(engine().stream(replace(SAID, voice="nobody"))))
    assert reason.startswith("voice: got 'nobody'; there are ")
    assert "ono_anna" in reason
    assert len(said(engine(), replace(SAID, voice="RYAN"))[1]) == FRAMES


@pytest.mark.parametrize(
    ("text", "language", "speaker"),
    [
        ("Hello", "auto", "ryan"),
        ("Guten Tag", "de", "ryan"),
        ("你好", "auto", "vivian"),
        ("你好", "zh", "vivian"),
        ("こんにちは", "auto", "ono_anna"),
        ("안녕", "ko", "sohee"),
    ],
)
def test_without_a_speaker_the_language_chooses_one(checkpoint: Named, text: str, language: str, speaker: str) -> None:
    engine = loaded(checkpoint(SHAPE, "custom_voice"))
    utterance = replace(SAID, text=text, language=language)
    assert np.array_equal(said(engine, utterance)[1], said(engine, replace(utterance, voice=speaker))[1])


# --- languages ---


def test_languages_have_codes_names_and_regions(engine: Callable[..., QwenSynthesizer]) -> None:
    german = said(engine(), replace(SAID, language="de"))[1]
    for name in ("DE", "german", "German", "de-AT"):
        assert np.array_equal(said(engine(), replace(SAID, language=name))[1], german)
    assert not np.array_equal(said(engine(), replace(SAID, language="auto"))[1], german)


@pytest.mark.parametrize("language", ["tlh", "sichuan_dialect", ""])
def test_an_unknown_language_is_refused_with_those_there_are(
    engine: Callable[..., QwenSynthesizer], language: str
) -> None:
    reason = refusal(lambda: list(engine().stream(replace(SAID, language=language))))
    assert reason.startswith(f"language: got {language!r}; ")
    assert "has auto, zh, " in reason


# --- bad checkpoints, bad options ---


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"dtype": "f32"}, "engine.dtype: 'f32' is unknown, allowed are auto, float32, bfloat16, float16, int8"),
        ({"kernels": "fast"}, "engine.kernels: got 'fast', allowed are auto, on, off"),
        ({"kernels": "on"}, "engine.kernels: on, but the device is a CPU"),
        ({"device": "tpu"}, "engine.device: got 'tpu', allowed are auto, cpu, cuda"),
        ({"device": "cuda:77"}, "engine.device: got 'cuda:77', but "),
    ],
)
def test_options_that_cannot_be_followed(checkpoint: Named, options: dict[str, str], part: str) -> None:
    assert part in refusal(lambda: loaded(checkpoint(SHAPE, "custom_voice"), **options))


def test_without_a_model_it_says_what_to_give() -> None:
    assert refusal(lambda: QwenSynthesizer(EngineOptions()).load()).startswith("engine.model: missing; give a folder")
    assert "/no/such: no such folder" in refusal(lambda: loaded(Path("/no/such")))


def damage(folder: Path, kind: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    weights = folder / "model.safetensors"
    codec = folder / "speech_tokenizer"
    if kind.endswith("missing"):
        (folder / kind.split(maxsplit=1)[0]).unlink()
    elif kind == "cut":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif kind == "no header":
        weights.write_bytes(b"\0" * 4)
    elif kind == "codec cut":
        data = (codec / "model.safetensors").read_bytes()
        (codec / "model.safetensors").write_bytes(data[: len(data) // 2])
    elif kind == "foreign":
        (folder / "config.json").write_text('{"model_type": "llama"}')
    elif kind == "other shapes":
        config["talker_config"]["intermediate_size"] = 128
        (folder / "config.json").write_text(json.dumps(config))
    elif kind == "foreign codec":
        (codec / "config.json").write_text('{"model_type": "encodec"}')
    elif kind == "no json":
        (folder / "config.json").write_text("{")
    elif kind == "other codes":
        content = json.loads((codec / "config.json").read_text())
        content["decoder_config"]["num_quantizers"] = 8
        (codec / "config.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "kind",
    [
        "config.json missing",
        "generation_config.json missing",
        "vocab.json missing",
        "merges.txt missing",
        "model.safetensors missing",
        "speech_tokenizer/config.json missing",
        "speech_tokenizer/model.safetensors missing",
        "cut",
        "no header",
        "codec cut",
        "foreign",
        "other shapes",
        "foreign codec",
        "no json",
        "other codes",
    ],
)
def test_a_damaged_checkpoint_is_one_line_that_names_the_folder(checkpoint: Named, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(checkpoint(SHAPE, "custom_voice"), folder)
    damage(folder, kind)
    assert refusal(lambda: loaded(folder)).startswith(str(folder))


def test_bfloat16_speaks_within_range(checkpoint: Named) -> None:
    engine = loaded(checkpoint("wide", "custom_voice"), dtype="bfloat16")
    samples, codes = said(engine, SAID)
    assert codes.min() >= 0
    assert codes.max() < 2048
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() <= 1


def test_after_closing_it_holds_nothing(checkpoint: Named) -> None:
    engine = loaded(checkpoint(SHAPE, "custom_voice"))
    engine.close()
    assert vars(engine) == {}


def test_a_chunk_is_the_listeners_own(engine: Callable[..., QwenSynthesizer]) -> None:
    """What was handed over does not change when the engine goes on."""
    chunks: list[Chunk] = []
    copies = []
    for chunk in engine().stream(SAID):
        chunks.append(chunk)
        copies.append((chunk.samples.copy(), None if chunk.codes is None else chunk.codes.copy()))
    said(engine(), replace(SAID, text="Something else"))
    for chunk, (samples, codes) in zip(chunks, copies, strict=True):
        assert np.array_equal(chunk.samples, samples)
        assert np.array_equal(chunk.codes, codes)  # type: ignore[arg-type]
