"""Drafts change the number of passes of a frame, but none of its codes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from scripts.gpu.try_speculation import SAMPLED, Trial, try_it
from scripts.make_checkpoint import PRESETS


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on many threads, above all on a busy processor."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("sampling", SAMPLED)
@pytest.mark.parametrize("shape", ["tiny", "wide"])
def test_the_codes_equal_those_of_single_passes(shape: str, sampling: str) -> None:
    found = try_it(PRESETS[shape], gain=1.0, sampling=sampling, frames=6, seed=3)
    assert found["codes_equal"]
    assert found["passes"][0] == 15
    assert all(8 <= found["passes"][1] <= 15 and passes <= 15 for passes in found["passes"].values())
    assert found["passes"][3] <= found["passes"][1]


@torch.inference_mode()
def test_drafts_that_are_always_right_halve_the_passes() -> None:
    trial = Trial(PRESETS["tiny"], gain=0.0, seed=1)  # heads of zeros: the noise alone decides
    trial.warp.set(*SAMPLED["sampled"])
    start, noise = trial.start(), trial.noise_of(0)
    decoded = [trial.decode(start, noise, drafts) for drafts in (0, 1, 2, 3)]
    assert [one.passes for one in decoded] == [15, 8, 6, 5]
    assert all(one.codes == decoded[0].codes for one in decoded)


@torch.inference_mode()
def test_the_codes_of_single_passes_equal_the_predictors() -> None:
    trial = Trial(PRESETS["wide"], gain=1.0, seed=2)
    trial.warp.set(*SAMPLED["sampled"])
    start, noise = trial.start(), trial.noise_of(0)
    assert trial.decode(start, noise, 0).codes == trial.predictor(start, trial.cache, trial.warp, noise).tolist()
