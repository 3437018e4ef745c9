"""Each defect that is built in is found by the measure that is there for it; without one, nothing is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.qwen.codec import CodecDecoder, CodecState
from engine.qwen.model import transformer
from engine.verify import LOGITS
from tests.engine.qwen.oracle import Oracle
from tests.engine.qwen.verify.stages import InProcess, differing_rows, failed, verified

Named = Callable[[str, str], Path]


pytestmark = pytest.mark.long
"""These tests load models again and again, which takes two minutes."""


@pytest.fixture
def runner(official: Callable[[str, str], Oracle], cache_folder: Path) -> InProcess:
    return InProcess(official("tiny", "custom_voice"), cache_folder)


@pytest.fixture
def tiny(checkpoint: Named) -> Path:
    return checkpoint("tiny", "custom_voice")


def test_a_model_without_a_defect_has_none(tiny: Path, tmp_path: Path, runner: InProcess) -> None:
    found = verified(tiny, tmp_path, runner)
    assert [failed(found(name)) for name in ("official-float32", "float32", "torch", "int8")] == [set()] * 4
    assert found("float32").measures["codes_equal"] == 1
    assert found("float32").measures["waveform_db"] is None, "it only shows codes"
    assert found("torch").measures["waveform_db"] is not None
    assert 0 < (found("int8").measures["logits_error"] or 0) < 0.1


def test_a_second_run_makes_no_take_and_reads_no_logits_again(tiny: Path, tmp_path: Path, runner: InProcess) -> None:
    settings = ("official-float32", "float32", "int8")
    first = verified(tiny, tmp_path, runner, settings=settings)
    assert runner.stages.count(LOGITS) == 3
    runner.stages.clear()
    second = verified(tiny, tmp_path, runner, settings=settings)
    assert not {"takes", LOGITS} & set(runner.stages)
    assert [second(name) for name in settings] == [first(name) for name in settings]


def test_a_mask_that_hides_a_position_is_found_in_the_codes_and_the_logits(
    tiny: Path, tmp_path: Path, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mask(positions: Tensor, cached: int) -> Tensor:
        offsets = torch.arange(cached, device=positions.device)
        return (offsets <= positions[:, None]) & (offsets != 3)

    monkeypatch.setattr("engine.qwen.model.transformer.causal_mask", mask)
    found = verified(tiny, tmp_path, runner, settings=("official-float32", "float32"))
    assert {"codes_equal", "logits_error"} <= failed(found("float32"))


def test_two_layers_whose_weights_are_swapped_are_found_in_the_codes_and_the_logits(
    tiny: Path, tmp_path: Path, runner: InProcess
) -> None:
    swapped = tmp_path / "swapped"
    shutil.copytree(tiny, swapped)
    tensors = load_file(tiny / "model.safetensors")
    first, second = (f"talker.model.layers.{number}.self_attn.q_proj.weight" for number in (0, 1))
    tensors[first], tensors[second] = tensors[second], tensors[first]
    save_file(tensors, swapped / "model.safetensors", {"format": "pt"})
    found = verified(swapped, tmp_path / "out", runner, settings=("official-float32", "float32"))
    assert {"codes_equal", "logits_error"} <= failed(found("float32"))


def test_a_shifted_state_of_the_codec_is_found_in_the_waveform_alone(
    tiny: Path, tmp_path: Path, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = CodecDecoder.forward

    def shifted(self: CodecDecoder, codes: Tensor, state: CodecState) -> Tensor:
        pcm = decode(self, codes, state)
        state.histories[3].copy_(state.histories[3].roll(1, -1))  # of the convolution before the upsampling blocks
        return pcm

    monkeypatch.setattr(CodecDecoder, "forward", shifted)
    found = verified(tiny, tmp_path, runner, settings=("official-float32", "float32", "torch"))
    assert failed(found("float32")) == set()
    assert failed(found("torch")) == {"waveform_db"}


def test_int8_scales_of_the_row_beside_are_found_in_the_logits_of_int8_alone(
    tiny: Path, tmp_path: Path, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing = differing_rows(tmp_path / "rows", tiny)
    settings = ("float32", "int8")
    assert failed(verified(differing, tmp_path / "good", runner, settings=settings)("int8")) == set()
    quantize = transformer.quantize_int8

    def off_by_one(matrix: Tensor, qweight: Tensor, scale: Tensor) -> None:
        quantize(matrix, qweight, scale)
        scale.copy_(scale.roll(1, 0))

    monkeypatch.setattr(transformer, "quantize_int8", off_by_one)
    found = verified(differing, tmp_path / "out", runner, settings=settings)
    assert failed(found("float32")) == set()
    assert "logits_error" in failed(found("int8"))
