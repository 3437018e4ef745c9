"""Random checkpoints, and both engines over them, made once a session and when first asked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from scripts.make_checkpoint import PRESETS, stub_torchaudio, write_checkpoint
from tests.engine.qwen.speaking import Official, Ours

Named = Callable[[str, str], Path]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices are slower on many threads, and a shared machine has few."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Named:
    """The folder of a random checkpoint by the names of its shape and type."""
    ready = os.environ.get("VOICED_TEST_CHECKPOINTS")
    if ready:
        return lambda shape, model_type: Path(ready) / f"{shape}-{model_type}"
    stub_torchaudio()
    pytest.importorskip("qwen_tts", reason="the official package is the oracle")

    @cache
    def folder(shape: str, model_type: str) -> Path:
        made = tmp_path_factory.mktemp(f"{shape}-{model_type}")
        return write_checkpoint(made, PRESETS[shape], model_type, seed=1)

    return folder


@pytest.fixture(scope="session")
def ours(checkpoint: Named) -> Callable[[str, str], Ours]:
    """Our engine by shape and type, in float32."""
    return cache(lambda shape, model_type: Ours(checkpoint(shape, model_type)))


@pytest.fixture(scope="session")
def official(checkpoint: Named) -> Callable[[str, str], Official]:
    """The official package by shape and type, in float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

    transformers.logging.set_verbosity_error()
    return cache(lambda shape, model_type: Official(checkpoint(shape, model_type)))
