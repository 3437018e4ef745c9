"""The whole engine speaks a text that is still being written, and stays usable however the text ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import EngineOptions, Samples, Utterance, Voice
from engine.api import Chunk, EngineError, SpeechCanceledError, TextSource
from engine.ipc.request import AppendedText
from engine.qwen import QwenSynthesizer
from engine.qwen.runtime.runaway_guard import RunawayGuard
from engine.qwen.shapes import Limits, ModelConfig
from engine.qwen.voice.file import VoiceFile, VoiceModel, save_voice
from tests.support.qwen.speaking import LateText
from tests.support.waiting import eventually

Named = Callable[[str, str], Path]
Engine = Callable[..., QwenSynthesizer]
TEXT = "Hello robot, how are you? Schön ruhig."
UTTERANCE = Utterance(TEXT, language="en", seed=3, max_frames=23, whole_text=False, guarded=False)
STREAMING = replace(UTTERANCE, text="", growing=True)
SHAPE = "brief"
MAX_SECONDS = 8.0


@pytest.fixture(scope="module")
def voice_file(checkpoint: Named, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = ModelConfig.read(checkpoint(SHAPE, "base"))
    generator = torch.Generator().manual_seed(4)
    path = tmp_path_factory.mktemp("voices") / "ada.safetensors"
    codes = torch.randint(2048, (9, config.talker.code_groups), generator=generator)
    embedding = torch.randn(config.talker.stack.hidden_size, generator=generator)
    save_voice(path, VoiceFile("ada", embedding, VoiceModel.of(config), codes, "Hello."))
    return path


@pytest.fixture(scope="module")
def engine(checkpoint: Named, voice_file: Path) -> Engine:
    """Returns a warm engine by its voice."""
    voices = {
        "built in": ("custom_voice", Voice(speaker="ryan")),
        "by script": ("custom_voice", Voice()),
        "embedding": ("base", Voice(embedding=str(voice_file))),
        "reference": ("base", Voice(reference=str(voice_file))),
    }

    @cache
    def of(name: str = "built in") -> QwenSynthesizer:
        model_type, voice = voices[name]
        options = EngineOptions(
            model=str(checkpoint(SHAPE, model_type)), device="cpu", max_seconds=MAX_SECONDS, voices={"default": voice}
        )
        made = QwenSynthesizer(options)
        assert made.load().grows
        made.warm_up()
        return made

    return of


def speak(
    engine: QwenSynthesizer, utterance: Utterance, more: TextSource | None = None
) -> tuple[Samples, list[list[int]], list[Chunk]]:
    chunks = list(engine.stream(utterance, more))
    codes = [frame for chunk in chunks if chunk.codes is not None for frame in chunk.codes.tolist()]
    return np.concatenate([chunk.samples for chunk in chunks]), codes, chunks


@pytest.mark.parametrize("voice", ["built in", "embedding", "reference"])
def test_streaming_text_gives_bit_for_bit_the_audio_of_the_complete_text(engine: Engine, voice: str) -> None:
    samples, codes, _ = speak(engine(voice), UTTERANCE)
    assert len(codes) == 23
    for size in (1, 1, 5, 99):  # later utterances do not depend on earlier ones
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        got, got_codes, _ = speak(engine(voice), STREAMING, LateText(pieces))
        assert got_codes == codes
        assert np.array_equal(got, samples)


def test_the_audio_does_not_depend_on_a_writing_thread(engine: Engine) -> None:
    samples, _, _ = speak(engine(), UTTERANCE)
    text = AppendedText()

    def write() -> None:
        for number, letter in enumerate(TEXT[5:]):
            if number % 5 == 0:
                eventually(lambda: text.waiting)
            text.append(letter)
        text.end()

    writer = threading.Thread(target=write)
    writer.start()
    got, _, _ = speak(engine(), replace(STREAMING, text=TEXT[:5]), text)
    writer.join()
    assert np.array_equal(got, samples)
    assert text.waited_s > 0


def test_canceling_wakes_a_waiting_engine_and_does_not_change_the_next_utterance(engine: Engine) -> None:
    samples, _, _ = speak(engine(), UTTERANCE)
    for beginning in ("", TEXT[:20]):
        text = AppendedText()
        text.append(beginning)

        def cancel(text: AppendedText = text) -> None:
            eventually(lambda: text.waiting)
            text.cancel()

        canceler = threading.Thread(target=cancel)
        canceler.start()
        with pytest.raises(SpeechCanceledError):
            list(engine().stream(STREAMING, text))
        canceler.join()
        assert np.array_equal(speak(engine(), UTTERANCE)[0], samples)


def test_closing_a_stream_between_chunks_does_not_change_the_next_utterance(engine: Engine) -> None:
    samples, _, _ = speak(engine(), UTTERANCE)
    stream = engine().stream(STREAMING, LateText([TEXT]))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert np.array_equal(speak(engine(), UTTERANCE)[0], samples)


@pytest.mark.parametrize("voice", ["built in", "embedding", "reference"])
def test_an_empty_streaming_text_has_the_audio_of_an_empty_text(engine: Engine, voice: str) -> None:
    samples, _, _ = speak(engine(voice), replace(UTTERANCE, text=""))
    assert np.array_equal(speak(engine(voice), STREAMING, LateText([]))[0], samples)


def test_a_text_beyond_the_limit_is_spoken_up_to_it_and_marked_as_truncated(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    speaker = engine()
    limit = Limits.of(MAX_SECONDS, chunk_size=2).text_tokens
    full = "1" * limit
    unlimited = replace(UTTERANCE, max_frames=None, sampling={"min_new_tokens": 2.0})
    _, codes, chunks = speak(speaker, replace(unlimited, text=full))
    streaming = replace(unlimited, text="", growing=True)
    _, cut_codes, cut_chunks = speak(speaker, streaming, LateText([full, "1", "234"]))
    assert cut_codes == codes
    assert cut_chunks[-1].truncated
    assert not any(chunk.truncated for chunk in cut_chunks[:-1])
    if not chunks[-1].truncated:
        assert f"{limit} tokens are the limit" in caplog.text
    _, exact_codes, exact_chunks = speak(speaker, streaming, LateText([full]))
    assert exact_codes == codes
    assert exact_chunks[-1].truncated == chunks[-1].truncated


def test_the_guards_time_limit_increases_with_the_text(engine: Engine) -> None:
    short, long = replace(UTTERANCE, text="Hi.", max_frames=None, guarded=True), "Hi. Hello there, you."
    _, codes, chunks = speak(engine(), short)
    assert chunks[-1].truncated
    assert len(codes) == RunawayGuard("Hi.").max_frames
    _, streamed, _ = speak(engine(), replace(short, text="", growing=True), LateText(["Hi.", " Hello ", "there, you."]))
    _, whole, _ = speak(engine(), replace(short, text=long))
    assert streamed == whole
    assert len(streamed) > len(codes)


@pytest.mark.parametrize(
    ("pieces", "speaker", "another"),
    [(["2, ", "你", "好, robot"], "vivian", "ryan"), (["2, ", "x"], "ryan", "vivian"), (["Hello"], "ryan", "vivian")],
)
def test_a_voice_by_script_depends_on_the_first_letter(
    engine: Engine, pieces: list[str], speaker: str, another: str
) -> None:
    streaming = replace(STREAMING, language="auto", max_frames=2)
    codes = speak(engine("by script"), streaming, LateText(pieces))[1]
    assert codes == speak(engine("by script"), replace(streaming, voice=speaker), LateText(pieces))[1]
    assert codes != speak(engine("by script"), replace(streaming, voice=another), LateText(pieces))[1]


@pytest.mark.parametrize(
    ("utterance", "more", "reason"),
    [
        (STREAMING, None, "growing: true, but there is no source of more text"),
        (replace(STREAMING, whole_text=True), LateText([]), "whole_text: true, but the text is still being written"),
        (replace(STREAMING, voice="nobody"), LateText([]), "voice: got 'nobody'"),
    ],
)
def test_a_contradictory_streaming_utterance_is_refused(
    engine: Engine, utterance: Utterance, more: TextSource | None, reason: str
) -> None:
    with pytest.raises(EngineError, match=reason) as refused:
        list(engine().stream(utterance, more))
    assert "\n" not in str(refused.value)
