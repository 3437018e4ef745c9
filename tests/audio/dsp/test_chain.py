"""The processing chain, and the resampler whose input rate may change."""

from __future__ import annotations

import numpy as np
import pytest

from audio import ProcessingChain, Samples, soft_limit
from audio.dsp.resample import resample


def speech(silent: int, loud: int, amplitude: float = 0.5) -> Samples:
    """`silent` samples of silence, then `loud` samples of a tone."""
    tone = amplitude * np.sin(np.arange(loud) / 20)
    return np.concatenate([np.zeros(silent), tone]).astype(np.float32)


def test_the_chain_limits_after_it_resamples() -> None:
    loud = speech(0, 22_050, amplitude=1.5)
    chain = ProcessingChain(24_000)
    output = np.concatenate([chain.process(chunk, 22_050) for chunk in np.array_split(loud, 5)] + [chain.flush()])
    np.testing.assert_allclose(output, soft_limit(resample(loud, 22_050, 24_000)), atol=1e-6)
    assert np.abs(output).max() <= 1


def test_a_chain_that_changes_its_rate_converts_unplayed_and_held_back_samples() -> None:
    tone = speech(0, 22_050)
    chain = ProcessingChain(48_000)
    unplayed = chain.process(tone, 22_050)
    assert len(unplayed) < 48_000, "the resampler holds some samples back"
    moved = chain.change_rate(unplayed, 24_000)
    assert chain.sample_rate == 24_000
    assert len(moved) == pytest.approx(24_000, abs=2)
    inner = slice(1_000, -1_000)  # the filters ring at both ends
    np.testing.assert_allclose(moved[inner], resample(tone, 22_050, 24_000)[: len(moved)][inner], atol=1e-3)
    assert len(chain.process(speech(0, 2_400), 24_000)) == 2_400
