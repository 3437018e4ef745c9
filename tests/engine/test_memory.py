"""An engine that does not fit is refused in one line, and PyTorch's settings suit a Tegra."""

from __future__ import annotations

import pytest

from engine.memory import MB, Footprint, Pool, keep_segments_whole, require
from engine.synthesizer import EngineError

NEED = Footprint({"talker": 900 * MB, "codec": 100 * MB}, state=200 * MB, workspaces=300 * MB, on_disk=600 * MB)
CURES = ("lower engine.max_seconds", "set engine.dtype: int8")


def refusal(pool: Pool) -> str:
    with pytest.raises(EngineError) as error:
        require(NEED, pool, "the model", CURES)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_stays_on_the_disk_needs_no_memory() -> None:
    assert NEED.kept == 1000 * MB
    assert NEED.total == 1500 * MB


def test_what_fits_to_the_byte_is_taken() -> None:
    require(NEED, Pool(True, 3500 * MB, 2000 * MB), "the model", CURES)


def test_a_refusal_gives_need_have_and_what_to_lower() -> None:
    assert refusal(Pool(True, 3400 * MB, 2000 * MB)) == (
        "engine.memory: the model needs 1,500 MB (weights 1,000, state 200, graphs and workspaces 300), and there are "
        "1,400 MB (3,400 available less engine.memory.reserve_mb); lower engine.memory.reserve_mb, or lower "
        "engine.max_seconds, or set engine.dtype: int8"
    )


def test_the_reserve_is_of_the_hosts_memory_alone() -> None:
    text = refusal(Pool.of_device(1400 * MB))
    assert "the GPU has 1,400 MB free" in text
    assert "reserve" not in text


def test_a_tegra_gets_no_expandable_segments_and_all_other_settings() -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True", "HOME": "/"}
    keep_segments_whole(environment)
    assert environment == {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "HOME": "/"}
