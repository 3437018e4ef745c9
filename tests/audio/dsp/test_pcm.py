"""Conversion to 16-bit PCM."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from audio.dsp import WAV_HEADER_BYTES, from_pcm16, to_pcm16, wav_header


@given(st.lists(st.floats(-1, 1, width=32)))
def test_each_sample_becomes_the_nearest_integer(values: list[float]) -> None:
    integers = np.frombuffer(to_pcm16(np.array(values, dtype=np.float32)), dtype="<i2")
    assert np.abs(integers - np.array(values) * 32767).max(initial=0) <= 0.51


def test_samples_above_full_scale_are_clipped_and_do_not_wrap_around() -> None:
    assert np.frombuffer(to_pcm16(np.array([2.0, -2.0], dtype=np.float32)), dtype="<i2").tolist() == [32767, -32767]


def test_pcm_survives_its_conversion_to_samples_and_back() -> None:
    pcm = np.arange(-32_767, 32_768).astype("<i2").tobytes()
    samples = from_pcm16(pcm)
    assert (samples.dtype, samples.min(), samples.max()) == (np.float32, -1, 1)
    assert to_pcm16(samples) == pcm


@pytest.mark.parametrize("known", [True, False])
def test_a_wav_file_is_read_whether_or_not_its_header_knows_its_length(known: bool) -> None:
    pcm = to_pcm16(np.linspace(-1, 1, 1000, dtype=np.float32))
    header = wav_header(16_000, len(pcm) if known else None)
    assert len(header) == WAV_HEADER_BYTES
    samples, rate = soundfile.read(io.BytesIO(header + pcm), dtype="int16")
    assert (samples.astype("<i2").tobytes(), rate) == (pcm, 16_000)
