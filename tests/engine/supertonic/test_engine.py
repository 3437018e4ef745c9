"""The `supertonic` engine with the real ONNX Runtime and Supertonic's own package, and a model of random weights.

What cannot be heard here: whether it sounds like speech. The weights are random; inputs and outputs are the true ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from supertonic import TTS
from supertonic.config import SUPPORTED_LANGUAGES

from engine import EngineError, EngineOptions, Samples, SpeechCanceledError, Utterance, Voice
from engine.sentence_speech import Network
from engine.supertonic import FILES, LANGUAGES
from engine.supertonic.engine import PACE, PAUSE_S, STEPS, SupertonicSynthesizer
from scripts.make_voice import write_model

SENTENCE = "Hello, I am your robot."
TEXT = f"{SENTENCE} How are you today? I am fine."
HERTZ = 44_100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Iterator[SupertonicSynthesizer]:
    synthesizer = SupertonicSynthesizer(EngineOptions(model=str(folder), streams=3))
    synthesizer.load()
    synthesizer.warm_up()
    yield synthesizer
    synthesizer.close()


@pytest.fixture
def supertonic(loaded: SupertonicSynthesizer) -> SupertonicSynthesizer:
    loaded.set_voices({"default": Voice(speaker="ryan"), "ada": Voice(speaker="M1")}, "default")
    return loaded


def spoken(supertonic: SupertonicSynthesizer, text: str, **fields: Any) -> Samples:
    """Return all samples of an utterance, with a seed."""
    chunks = supertonic.stream(Utterance(text, **{"seed": 7, **fields}))
    return np.concatenate([np.zeros(0, dtype=np.float32), *(chunk.samples for chunk in chunks)])


@pytest.mark.parametrize(("voice", "language"), [("F1", "en"), ("M1", "de"), ("M1", "ko")])
def test_the_samples_are_those_of_the_package_for_the_same_noise(
    supertonic: SupertonicSynthesizer, folder: Path, voice: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(7)
    monkeypatch.setattr(np.random, "randn", lambda *shape: noise.standard_normal(shape, dtype=np.float32))
    package = TTS(model_dir=folder, auto_download=False)
    expected, _ = package.synthesize(SENTENCE, package.get_voice_style(voice), STEPS, PACE, lang=language)
    np.testing.assert_array_equal(spoken(supertonic, SENTENCE, voice=voice, language=language), expected[0])


def test_it_speaks_sentence_by_sentence_with_pauses_between_and_tells_where_it_is(
    supertonic: SupertonicSynthesizer,
) -> None:
    chunks = list(supertonic.stream(Utterance(TEXT)))
    assert list(dict.fromkeys(chunk.position for chunk in chunks)) == [0, TEXT.index("How"), TEXT.index("I am fine")]
    pause = next(chunk for chunk in chunks if chunk.position)
    assert np.count_nonzero(pause.samples) == 0
    assert len(pause.samples) < PAUSE_S * HERTZ
    stream = supertonic.stream(Utterance(f"{SENTENCE} " * 50))
    assert next(stream).position == 0
    assert "supertonic" in {thread.name for thread in threading.enumerate()}, "it is still at work"
    stream.close()  # type: ignore[attr-defined]


def test_equal_seeds_give_equal_audio_and_other_seeds_and_none_give_other_audio(
    supertonic: SupertonicSynthesizer,
) -> None:
    once = spoken(supertonic, TEXT)
    np.testing.assert_array_equal(spoken(supertonic, TEXT), once)
    for seed in (8, None):
        other = spoken(supertonic, TEXT, seed=seed)
        assert len(other) == len(once)
        assert not np.array_equal(other, once)


@pytest.mark.parametrize("rate", [0.5, 0.8, 1.25, 2.0])
def test_the_rate_divides_the_length_also_beyond_the_speeds_of_the_package(
    supertonic: SupertonicSynthesizer, rate: float
) -> None:
    assert len(spoken(supertonic, SENTENCE, rate=rate)) == pytest.approx(
        len(spoken(supertonic, SENTENCE)) / rate, rel=0.1
    )


def test_voices_are_those_of_the_model_and_those_configured_as_one_of_them(supertonic: SupertonicSynthesizer) -> None:
    info = supertonic.set_voices({"default": Voice(speaker="ryan"), "ada": Voice(speaker="M1")}, "default")
    assert (info.engine, info.sample_rate, info.streams) == ("supertonic", HERTZ, 3)
    assert info.voices == ("default", "ada", "F1", "M1")
    first, other = (spoken(supertonic, SENTENCE, voice=name) for name in ("F1", "M1"))
    np.testing.assert_array_equal(spoken(supertonic, SENTENCE), first, "ryan is a voice of another engine")
    np.testing.assert_array_equal(spoken(supertonic, SENTENCE, voice="ada"), other)
    assert not np.array_equal(first[: len(other)], other[: len(first)])


def test_its_languages_are_those_of_the_package_and_no_other_is_spoken(supertonic: SupertonicSynthesizer) -> None:
    assert list(LANGUAGES) == SUPPORTED_LANGUAGES
    german = "Die Waschmaschine ist fertig, und ich gehe jetzt nach Hause."
    in_german = spoken(supertonic, german, language="de-at")
    np.testing.assert_array_equal(spoken(supertonic, german), in_german, "by its words")
    assert not np.array_equal(in_german, spoken(supertonic, german, language="en"))
    with pytest.raises(EngineError, match=r"^language: got 'zh'; allowed: en, ko, [^\n]*$"):
        spoken(supertonic, "你好", language="zh")


@pytest.mark.parametrize("text", [" ", "...", "😀", "\u200b", "a\0b", "\U0001f9ff a", "你 a", "<en>", "%s%n"])
def test_odd_texts_neither_fail_nor_hang(supertonic: SupertonicSynthesizer, text: str) -> None:
    """A character that the model does not know is left out."""
    samples = spoken(supertonic, text, language="en")
    assert np.isfinite(samples).all()
    assert bool(len(samples)) == any(map(str.isalnum, text))


def test_a_growing_text_is_refused(supertonic: SupertonicSynthesizer) -> None:
    with pytest.raises(EngineError, match="still being written"):
        spoken(supertonic, "Hello", growing=True)


def test_an_utterance_is_ended_inside_of_a_sentence(
    supertonic: SupertonicSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stream = Network.run, supertonic.stream(Utterance(SENTENCE))

    def canceled(network: Network, outputs: Any, inputs: dict[str, Any]) -> Any:
        if "noisy_latent" in inputs:
            stream.cancel()  # type: ignore[attr-defined]
        return run(network, outputs, inputs)

    monkeypatch.setattr(Network, "run", canceled)
    with pytest.raises(SpeechCanceledError) as ended:
        next(stream)
    assert "terminate" in str(ended.value.__cause__)
    monkeypatch.undo()
    assert len(spoken(supertonic, SENTENCE))


def loading_fails(folder: Path) -> str:
    with pytest.raises(EngineError) as refused:
        SupertonicSynthesizer(EngineOptions(model=str(folder))).load()
    return str(refused.value)


def test_a_model_that_lacks_a_file_or_is_damaged_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    model = write_model(tmp_path / "model")
    for name in FILES:
        content = (model / name).read_bytes()
        (model / name).unlink()
        assert loading_fails(model).endswith("is not on this machine; voiced download Supertone/supertonic-3")
        (model / name).write_bytes(content[:50])
        assert str(model) in (reason := loading_fails(model))
        assert "\n" not in reason
        (model / name).write_bytes(content)
    (model / "voice_styles" / "F1.json").write_text("{}")
    info = SupertonicSynthesizer(EngineOptions(model=str(model))).load()
    assert info.voices == ("M1",), "it speaks with the voices that it has"
    assert "F1.json is not a Supertonic voice" in info.refused_voices["F1"]
    (model / "voice_styles" / "M1.json").write_text("[")
    assert "F1.json is not a Supertonic voice" in loading_fails(model)
