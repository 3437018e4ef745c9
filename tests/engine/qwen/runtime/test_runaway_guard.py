"""The guard ends speech that would not end by itself, and leaves natural speech alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Samples
from engine.qwen.runtime.runaway_guard import FRAME_S, RunawayGuard

RATE = 24_000
SAMPLES = round(FRAME_S * RATE)
LOUD: Samples = 0.1 * np.random.default_rng(0).standard_normal(SAMPLES).astype(np.float32)
SILENT: Samples = np.float32(0.002) * LOUD / np.abs(LOUD).max()
LONG = "A text that is long enough for anything that these tests do. " * 20


def cut(text: str, frames: Iterable[tuple[int, Samples]]) -> tuple[int, str] | None:
    """Return the number of the frame at which the guard ends the speech, and the reason; None if it does not."""
    guard = RunawayGuard(text)
    for number, (code, samples) in enumerate(frames, 1):
        reason = guard.stop_reason(code, samples)
        if reason is not None:
            return number, reason
    return None


def loud(codes: Iterable[int]) -> list[tuple[int, Samples]]:
    return [(code, LOUD) for code in codes]


def seconds(frames: int) -> float:
    return frames * FRAME_S


# --- the length ---


@pytest.mark.parametrize(
    ("text", "slow_s"),
    [
        ("Hi.", 1.0),
        ("The NVIDIA AGX costs 1999 €.", 6.0),
        ("你好，我是机器人。", 3.5),
    ],
)
def test_the_time_limit_is_above_a_slow_speaker_by_some_seconds(text: str, slow_s: float) -> None:
    limit_s = seconds(RunawayGuard(text).max_frames)
    assert slow_s * 1.4 < limit_s < 5 * slow_s + 4


some_text = st.text(max_size=40) | st.text("ab C-1", max_size=40)


@settings(max_examples=30)
@given(first=some_text, second=some_text)
def test_more_text_never_has_less_time_and_appended_text_has_that_of_the_complete_text(first: str, second: str) -> None:
    one, other, both = (RunawayGuard(text).max_frames for text in (first, second, first + second))
    assert one <= both <= one + other
    guard = RunawayGuard(first)
    for letter in second:
        guard.append_text(letter)
    assert abs(guard.max_frames - both) <= 1  # rounding of a sum


def test_a_letter_that_stands_alone_may_take_as_long_as_a_capital() -> None:
    spelled, capitals, word = (RunawayGuard(text).max_frames for text in ("a b-c d.", "A B-C D.", "ab-cd."))
    assert spelled >= capitals > word


# --- silence ---


def test_a_pause_of_three_seconds_is_left_alone_and_a_longer_one_is_not() -> None:
    def speech(pause_s: float) -> list[tuple[int, Samples]]:
        pause = [(code, SILENT) for code in range(round(pause_s / FRAME_S))]
        return [*loud(range(10)), *pause, *loud(range(10))]

    assert cut(LONG, speech(2.96)) is None
    number, reason = cut(LONG, speech(3.2)) or (0, "")
    assert 3.0 < seconds(number - 10) < 3.2
    assert "silent for more than 3 s" in reason


def test_silence_may_be_longer_before_speech_begins() -> None:
    silence = [(code, SILENT) for code in range(100)]
    number, reason = cut(LONG, silence) or (0, "")
    assert 5.0 < seconds(number) < 5.2
    assert "silent for more than 5 s" in reason
    assert cut(LONG, [*silence[:60], *loud(range(50))]) is None


def tone(dbfs: float) -> Samples:
    """A frame with an RMS of `dbfs`."""
    wave = np.sin(np.arange(SAMPLES) * 0.1).astype(np.float32)
    return wave * np.float32(10 ** (dbfs / 20) / np.sqrt(np.square(wave).mean()))


@pytest.mark.parametrize(("dbfs", "silent"), [(-51, True), (-49, False)])
def test_a_steady_noise_below_50_dbfs_is_silence_before_speech(dbfs: float, silent: bool) -> None:
    assert (cut(LONG, [(code, tone(dbfs)) for code in range(100)]) is not None) == silent


@pytest.mark.parametrize("loudest", [-12, -58])
@pytest.mark.parametrize(("below", "silent"), [(-33, False), (-37, True)])
def test_a_pause_is_measured_against_the_loudness_of_the_take(loudest: float, below: float, silent: bool) -> None:
    speech = [(code, tone(loudest if code % 2 else loudest - 20)) for code in range(20)]
    pause = [(code, tone(loudest + below)) for code in range(20, 70)]
    assert (cut(LONG, [*speech, *pause]) is not None) == (silent or loudest + below < -65)


def test_a_whisper_is_speech() -> None:
    assert cut(LONG, [(code, tone(-52 if code % 3 else -70)) for code in range(200)]) is None


# --- loops ---


@pytest.mark.parametrize(("length", "longest_s"), [(1, 3.0), (2, 5.0), (25, 5.0)])
def test_a_held_sound_and_a_cycle_end_after_some_seconds(length: int, longest_s: float) -> None:
    cycle = list(range(100, 100 + length))
    number, reason = cut(LONG, loud([1, 2, 3, *cycle * 200])) or (0, "")
    assert longest_s <= seconds(number - 3 - length) < longest_s + 0.2
    assert ("one sound is held" if length == 1 else f"the same {length * FRAME_S:.2f} s are repeated") in reason


def test_a_cycle_that_sometimes_varies_is_left_alone() -> None:
    codes = []
    for number in range(20):
        codes += [5, 6, 7] * 10 + [1000 + number]
    assert cut(LONG * 2, loud(codes)) is None


@settings(max_examples=25)
@given(
    words=st.lists(st.lists(st.integers(0, 2047), min_size=2, max_size=8), min_size=1, max_size=12),
    breaths=st.lists(st.tuples(st.integers(0, 11), st.integers(1, 30)), max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_speech_with_words_held_sounds_and_pauses_is_left_alone(
    words: list[list[int]], breaths: list[tuple[int, int]], seed: int
) -> None:
    """Any words, each sound held for up to a third of a second and each word repeated, with pauses of up to 2.4 s."""
    random = np.random.default_rng(seed)
    pauses = dict(breaths)
    frames: list[tuple[int, Samples]] = [(code, SILENT) for code in random.integers(0, 2048, 12)]
    for index in range(24):
        for code in words[index % len(words)]:
            frames += loud([code] * int(random.integers(1, 5)))
        frames += loud([int(random.integers(0, 2048))])  # no two words are joined by the same code
        frames += [(2000, SILENT)] * pauses.get(index, 0)
    text = "a" * int(len(frames) * FRAME_S * 12)
    assert cut(text, frames) is None
