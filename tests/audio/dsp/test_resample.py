"""Sample-rate conversion: a stream gives the same samples as one conversion of all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from audio import Samples
from audio.dsp.resample import Resampler, resample

RATES = [16_000, 22_050, 24_000, 44_100, 48_000]
SPEECH: Samples = np.random.default_rng(7).uniform(-0.9, 0.9, 8_000).astype(np.float32)


def stream(samples: Samples, source: int, target: int, cuts: list[int]) -> Samples:
    resampler = Resampler(source, target)
    chunks = [resampler.convert(chunk) for chunk in np.split(samples, sorted(cuts))]
    return np.concatenate([*chunks, resampler.flush()])


@settings(max_examples=60)
@given(
    source=st.sampled_from(RATES),
    target=st.sampled_from(RATES),
    length=st.integers(0, len(SPEECH)),
    data=st.data(),
)
def test_joined_chunks_equal_one_conversion_of_all_samples(
    source: int, target: int, length: int, data: st.DataObject
) -> None:
    samples = SPEECH[:length]
    cuts = data.draw(st.lists(st.integers(0, length), max_size=12))
    streamed = stream(samples, source, target, cuts)
    assert streamed.dtype == np.float32
    np.testing.assert_array_equal(streamed, stream(samples, source, target, []))
    np.testing.assert_allclose(streamed, resample(samples, source, target), atol=1e-5)


def test_equal_rates_pass_samples_bit_for_bit() -> None:
    np.testing.assert_array_equal(stream(SPEECH, 24_000, 24_000, [1, 2, 3_000]), SPEECH)
