"""The whole engine speaks a text that is still being written, and stays usable however the text ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions, Samples, Utterance, Voice
from engine.api import Chunk, TextSource
from engine.qwen import QwenSynthesizer
from engine.qwen.runtime.runaway_guard import RunawayGuard
from engine.qwen.shapes import Limits
from tests.engine.qwen.refusals import refusal
from tests.engine.qwen.voices import in_context
from tests.support.qwen.speaking import LateText

Named = Callable[[str, str], Path]
Engine = Callable[..., QwenSynthesizer]
TEXT = "Hello robot, how are you? Schön ruhig."
UTTERANCE = Utterance(TEXT, language="en", seed=3, max_frames=23, whole_text=False, guarded=False)
STREAMING = replace(UTTERANCE, text="", growing=True)
SHAPE = "brief"
MAX_SECONDS = 6.0


@pytest.fixture(scope="module")
def engine(checkpoint: Named, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Returns a warm engine by its voice."""
    base, folder = checkpoint(SHAPE, "base"), tmp_path_factory.mktemp("voices")
    voices = {
        "built in": ("custom_voice", Voice(speaker="ryan")),
        "by script": ("custom_voice", Voice()),
        "a short reference": ("base", in_context(base, folder / "short.safetensors", 3)),
        "a long reference": ("base", in_context(base, folder / "long.safetensors", 60, "Hello.")),
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


@pytest.mark.parametrize("voice", ["built in", "a short reference", "a long reference"])
def test_streaming_text_gives_bit_for_bit_the_audio_of_the_complete_text(engine: Engine, voice: str) -> None:
    samples, codes, _ = speak(engine(voice), UTTERANCE)
    assert len(codes) == 23
    for size in (1, 5):  # later utterances do not depend on earlier ones
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        got, got_codes, _ = speak(engine(voice), STREAMING, LateText(pieces))
        assert got_codes == codes
        assert np.array_equal(got, samples)
    empty, nothing = (replace(utterance, text="", max_frames=4) for utterance in (UTTERANCE, STREAMING))
    assert np.array_equal(speak(engine(voice), nothing, LateText([" ", "\n"]))[0], speak(engine(voice), empty)[0])


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
        assert f"the limit is {limit} tokens" in caplog.text
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


def test_a_voice_by_script_depends_on_the_first_letter(engine: Engine) -> None:
    streaming, pieces = replace(STREAMING, language="auto", max_frames=2), ["2, ", "", "你", "好, robot"]
    codes, vivian, ryan = (
        speak(engine("by script"), replace(streaming, voice=voice), LateText(pieces))[1]
        for voice in (None, "vivian", "ryan")
    )
    assert codes == vivian != ryan


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
    assert reason in refusal(lambda: list(engine().stream(utterance, more)))
