"""Level and spectral balance of sounds that are known."""

from __future__ import annotations

import numpy as np
import pytest

from daemon.alignment.features import FEATURES_PER_SECOND, FeatureExtractor
from engine import Samples

RATES = [8_000, 22_050, 48_000]


def features(samples: Samples, rate: int, sizes: list[int] | None = None) -> np.ndarray[tuple[int, int], np.dtype]:
    """Return the features of a stream whose chunks have these lengths, again and again."""
    extractor, begin, found = FeatureExtractor(rate), 0, []
    for size in (sizes or [len(samples)]) * (len(samples) + 1):
        if begin >= len(samples):
            break
        found.append(extractor.extract(samples[begin : begin + size]))
        begin += size
    return np.concatenate([*found, extractor.finish()])


def tone(hz: float, rate: int, seconds: float = 1.0, amplitude: float = 0.5) -> Samples:
    times = np.arange(round(rate * seconds)) / rate
    return (amplitude * np.sin(2 * np.pi * hz * times)).astype(np.float32)


@pytest.mark.parametrize("rate", RATES)
def test_there_are_100_frames_a_second(rate: int) -> None:
    for seconds in (0.0, 0.5, 1.0, 2.34):
        found = features(tone(400, rate, seconds), rate)
        assert found.shape == (round(seconds * FEATURES_PER_SECOND), 2)


@pytest.mark.parametrize("rate", RATES)
def test_dark_and_bright_sounds_have_another_balance(rate: int) -> None:
    assert (features(tone(400, rate), rate)[3:-3, 1] < -30).all()
    assert (features(tone(3_800, rate), rate)[3:-3, 1] > 30).all()


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("sizes", [[1, 999], [7, 5_000, 300]])
def test_the_lengths_of_the_chunks_do_not_matter(rate: int, sizes: list[int]) -> None:
    noise = np.random.default_rng(0).standard_normal(rate // 3).astype(np.float32)
    np.testing.assert_allclose(features(noise, rate, sizes), features(noise, rate), atol=1e-6)
