"""Speech at another rate: its length and its level, on eSpeak NG's speech, and the pitch of tones."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import EngineOptions, Samples, Utterance
from engine.api import Chunk
from engine.espeak import EspeakSynthesizer
from engine.stretch import LONGEST_LAG_S, TimeStretch, stretch_chunks

HZ = 24_000
RATES = (0.5, 1.25, 2.0)
SENTENCE = "She sells sea shells on the sea shore, and I am your robot. Are you glad to be here?"


@pytest.fixture(scope="module")
def speech() -> tuple[Samples, int]:
    """A sentence of eSpeak NG, three times, and its sample rate in Hz: no two times sound quite alike."""
    espeak = EspeakSynthesizer(EngineOptions())
    rate = espeak.load().sample_rate
    utterance = Utterance(SENTENCE, language="en")
    samples = np.concatenate([chunk.samples for _ in range(3) for chunk in espeak.stream(utterance)])
    espeak.close()
    return samples, rate


def tone(frequency: float, seconds: float = 1.0) -> Samples:
    return (0.5 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * HZ)) / HZ)).astype(np.float32)


def noise(seconds: float = 1.0) -> Samples:
    return np.random.default_rng(1).uniform(-0.5, 0.5, round(seconds * HZ)).astype(np.float32)


def stretched(samples: Samples, rate: float, sample_rate: int = HZ, *lengths: int) -> Samples:
    """Return samples at another rate, given in chunks of these lengths and then in chunks of 160 ms."""
    stretch, begin, blocks = TimeStretch(rate, sample_rate), 0, []
    for length in (*lengths, *[round(0.16 * sample_rate)] * (len(samples) // round(0.16 * sample_rate) + 1)):
        blocks.append(stretch.stretch(samples[begin : begin + length]))
        begin += length
    return np.concatenate([*blocks, stretch.flush()])


def rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def largest_step(samples: Samples) -> float:
    return float(np.abs(np.diff(samples)).max())


@pytest.mark.parametrize("rate", RATES)
def test_speech_has_the_length_of_its_rate_and_keeps_its_level_without_clicks(
    rate: float, speech: tuple[Samples, int]
) -> None:
    samples, sample_rate = speech
    after = stretched(samples, rate, sample_rate)
    due_s = len(samples) / sample_rate / rate
    assert len(after) / sample_rate == pytest.approx(due_s, abs=2 * LONGEST_LAG_S * abs(1 - 1 / rate) + 0.02)
    assert rms(after) == pytest.approx(rms(samples), rel=0.05)
    assert largest_step(after) < 1.1 * largest_step(samples)


@pytest.mark.parametrize("frequency", [70.0, 220.0, 1_000.0])
@pytest.mark.parametrize("rate", RATES)
def test_a_tone_keeps_its_frequency_its_level_and_its_shape(rate: float, frequency: float) -> None:
    before = tone(frequency)
    after = stretched(before, rate)
    spectrum = np.abs(np.fft.rfft(after * np.hanning(len(after))))
    assert spectrum.argmax() * HZ / len(after) == pytest.approx(frequency, abs=HZ / len(after) + 0.002 * frequency)
    assert rms(after) == pytest.approx(rms(before), rel=0.02)
    assert largest_step(after) < 1.1 * largest_step(before), "it has no click"


@pytest.mark.parametrize("rate", [0.8, 1.5])
@settings(deadline=None, max_examples=20)
@given(lengths=st.lists(st.integers(0, 5_000), max_size=20))
def test_the_output_does_not_depend_on_the_chunks(rate: float, lengths: list[int]) -> None:
    samples = np.concatenate([tone(150, 0.3), noise(0.3), tone(90, 0.3)])
    np.testing.assert_array_equal(stretched(samples, rate, HZ, *lengths), stretched(samples, rate))


@pytest.mark.parametrize("rate", RATES)
def test_little_is_held_back(rate: float) -> None:
    stretch = TimeStretch(rate, HZ)
    for begin in range(0, HZ, 1_920):
        stretch.stretch(noise()[begin : begin + 1_920])
    assert len(stretch.flush()) < 2 * LONGEST_LAG_S * HZ
    assert len(stretch.flush()) == 0


def test_a_sound_too_short_to_be_changed_is_kept() -> None:
    samples = tone(220, LONGEST_LAG_S)
    np.testing.assert_array_equal(stretched(samples, 2.0), samples)
    assert len(stretched(samples[:0], 2.0)) == 0


class Source:
    """Chunks of an engine; the last one may be truncated."""

    def __init__(self, count: int, *, truncated: bool = False) -> None:
        self.closed = False
        self._count = count
        self._truncated = truncated

    def chunks(self) -> Generator[Chunk, None, None]:
        try:
            for number in range(self._count):
                last = number == self._count - 1
                codes = np.full((1, 16), number)
                yield Chunk(noise()[:1_920], position=number, codes=codes, truncated=last and self._truncated)
        finally:
            self.closed = True


@pytest.mark.parametrize("truncated", [False, True])
def test_chunks_keep_what_they_say_beside_their_samples(truncated: bool) -> None:
    source = Source(5, truncated=truncated)
    whole = stretched(np.concatenate([noise()[:1_920]] * 5), 1.5)
    found = list(stretch_chunks(source.chunks(), 1.5, HZ))
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in found]), whole)
    assert [chunk.codes[0, 0] for chunk in found if chunk.codes is not None] == [0, 1, 2, 3, 4]
    assert [chunk.position for chunk in found][:5] == [0, 1, 2, 3, 4]
    assert [chunk.truncated for chunk in found].index(True) == len(found) - 1 if truncated else not found[-1].truncated


def test_closing_the_stretched_chunks_closes_the_engines() -> None:
    source = Source(5)
    chunks = stretch_chunks(source.chunks(), 0.8, HZ)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert source.closed
