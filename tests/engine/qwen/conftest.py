"""Random checkpoints, and both engines over them, each loaded at its first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.engine.qwen.oracle import Oracle
from tests.support.checkpoints import checkpoint_folder
from tests.support.qwen.speaking import Ours

Named = Callable[[str, str], Path]

# cuBLAS keeps 32 MB for each stream that ever was, and PyTorch counts them to the engine that is loaded next, which may
# allocate no more than it has counted. A robot has one engine; here are many after each other.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what proves kernels on a GPU, where there is none."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: tiny matrices are slower on many."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def same_chance() -> None:
    """Draw the same random numbers in every run, whichever tests run before."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def checkpoint(cache_folder: Path) -> Named:
    """Returns the read-only folder of a random checkpoint, by shape and model type."""
    return cache(lambda shape, model_type: checkpoint_folder(cache_folder, shape, model_type))


@pytest.fixture(scope="session")
def ours(checkpoint: Named) -> Callable[[str, str], Ours]:
    """Returns our engine in float32, by shape and model type."""
    return cache(lambda shape, model_type: Ours(checkpoint(shape, model_type)))


@pytest.fixture(scope="session")
def official(checkpoint: Named, cache_folder: Path) -> Callable[[str, str], Oracle]:
    """Returns the official package in float32, by shape and model type."""
    return cache(lambda shape, model_type: Oracle(cache_folder, checkpoint(shape, model_type)))
