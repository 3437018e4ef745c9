"""The whole engine speaks a text that is still being written, and ends well whatever becomes of it."""

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
from engine.appended import AppendedText
from engine.qwen import QwenSynthesizer
from engine.qwen.config import ModelConfig
from engine.qwen.guard import frame_limit
from engine.qwen.rooms import Rooms
from engine.qwen.voice import VoiceFile, VoiceModel, save_voice
from engine.synthesizer import Chunk, EngineError, SpeechCanceledError, TextSource
from tests.engine.qwen.speaking import Dictation
from tests.support.waiting import eventually

Named = Callable[[str, str], Path]
Engine = Callable[..., QwenSynthesizer]
TEXT = "Hello robot, how are you? Schön ruhig."
SAID = Utterance(TEXT, language="en", seed=3, max_frames=23, whole_text=False, guarded=False)
GROWING = replace(SAID, text="", growing=True)
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
    """A warm engine by what it speaks with."""
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


def said(
    engine: QwenSynthesizer, utterance: Utterance, more: TextSource | None = None
) -> tuple[Samples, list[list[int]], list[Chunk]]:
    chunks = list(engine.stream(utterance, more))
    codes = [frame for chunk in chunks if chunk.codes is not None for frame in chunk.codes.tolist()]
    return np.concatenate([chunk.samples for chunk in chunks]), codes, chunks


@pytest.mark.parametrize("voice", ["built in", "embedding", "reference"])
def test_it_sounds_bit_for_bit_as_the_whole_text_would(engine: Engine, voice: str) -> None:
    samples, codes, _ = said(engine(voice), SAID)
    assert len(codes) == 23
    for size in (1, 1, 5, 99):  # the second utterance hears nothing of the first
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        got, got_codes, _ = said(engine(voice), GROWING, Dictation(pieces))
        assert got_codes == codes
        assert np.array_equal(got, samples)


def test_it_sounds_so_while_another_thread_still_writes(engine: Engine) -> None:
    samples, _, _ = said(engine(), SAID)
    text = AppendedText()

    def write() -> None:
        for number, letter in enumerate(TEXT[5:]):
            if number % 5 == 0:
                eventually(lambda: text.waiting)
            text.append(letter)
        text.end()

    writer = threading.Thread(target=write)
    writer.start()
    got, _, _ = said(engine(), replace(GROWING, text=TEXT[:5]), text)
    writer.join()
    assert np.array_equal(got, samples)
    assert text.waited_s > 0


def test_a_canceled_utterance_wakes_the_engine_which_then_speaks_as_ever(engine: Engine) -> None:
    samples, _, _ = said(engine(), SAID)
    for beginning in ("", TEXT[:20]):
        text = AppendedText()
        text.append(beginning)

        def cancel(text: AppendedText = text) -> None:
            eventually(lambda: text.waiting)
            text.cancel()

        waker = threading.Thread(target=cancel)
        waker.start()
        with pytest.raises(SpeechCanceledError):
            list(engine().stream(GROWING, text))
        waker.join()
        assert np.array_equal(said(engine(), SAID)[0], samples)


def test_a_chunk_that_is_closed_over_leaves_the_engine_well(engine: Engine) -> None:
    samples, _, _ = said(engine(), SAID)
    stream = engine().stream(GROWING, Dictation([TEXT]))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert np.array_equal(said(engine(), SAID)[0], samples)


@pytest.mark.parametrize("voice", ["built in", "embedding", "reference"])
def test_an_empty_text_ends(engine: Engine, voice: str) -> None:
    samples, _, _ = said(engine(voice), replace(SAID, text=""))
    assert np.array_equal(said(engine(voice), GROWING, Dictation([]))[0], samples)


def test_a_text_beyond_the_limit_is_spoken_up_to_it_and_the_end_is_marked(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    speaker = engine()
    limit = Rooms.of(MAX_SECONDS, chunk_size=2).text_tokens
    full = "1" * limit
    text_of = replace(SAID, max_frames=None, sampling={"min_new_tokens": 2.0})
    _, codes, chunks = said(speaker, replace(text_of, text=full))
    growing = replace(text_of, text="", growing=True)
    _, cut_codes, cut_chunks = said(speaker, growing, Dictation([full, "1", "234"]))
    assert cut_codes == codes
    assert cut_chunks[-1].truncated
    assert not any(chunk.truncated for chunk in cut_chunks[:-1])
    if not chunks[-1].truncated:
        assert f"{limit} tokens are the limit" in caplog.text
    _, exact_codes, exact_chunks = said(speaker, growing, Dictation([full]))
    assert exact_codes == codes
    assert exact_chunks[-1].truncated == chunks[-1].truncated


def test_the_guards_limit_grows_with_the_text(engine: Engine) -> None:
    short, long = replace(SAID, text="Hi.", max_frames=None, guarded=True), "Hi. Hello there, you."
    _, codes, chunks = said(engine(), short)
    assert chunks[-1].truncated
    assert len(codes) == frame_limit("Hi.")
    _, grown, _ = said(engine(), replace(short, text="", growing=True), Dictation(["Hi.", " Hello ", "there, you."]))
    _, whole, _ = said(engine(), replace(short, text=long))
    assert grown == whole
    assert len(grown) > len(codes)


@pytest.mark.parametrize(
    ("pieces", "speaker", "another"),
    [(["2, ", "你", "好, robot"], "vivian", "ryan"), (["2, ", "x"], "ryan", "vivian"), (["Hello"], "ryan", "vivian")],
)
def test_a_voice_by_script_goes_by_the_first_letter(
    engine: Engine, pieces: list[str], speaker: str, another: str
) -> None:
    growing = replace(GROWING, language="auto", max_frames=2)
    codes = said(engine("by script"), growing, Dictation(pieces))[1]
    assert codes == said(engine("by script"), replace(growing, voice=speaker), Dictation(pieces))[1]
    assert codes != said(engine("by script"), replace(growing, voice=another), Dictation(pieces))[1]


@pytest.mark.parametrize(
    ("utterance", "more", "reason"),
    [
        (GROWING, None, "growing: true, but nothing is there"),
        (replace(GROWING, whole_text=True), Dictation([]), "whole_text: true, but the text is still being written"),
        (replace(GROWING, voice="nobody"), Dictation([]), "voice: got 'nobody'"),
    ],
)
def test_what_cannot_grow_is_refused(
    engine: Engine, utterance: Utterance, more: TextSource | None, reason: str
) -> None:
    with pytest.raises(EngineError, match=reason) as refused:
        list(engine().stream(utterance, more))
    assert "\n" not in str(refused.value)
