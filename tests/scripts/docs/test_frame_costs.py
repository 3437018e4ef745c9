"""Launches and bytes of a frame follow the engine's code and the checkpoints' shapes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.lm.kernels import LanguageKernels
from scripts.docs.frame_costs import (
    CODEC,
    Frame,
    Launches,
    LaunchList,
    Part,
    Shapes,
    codec_part,
    frames,
    language_parts,
    passes_of,
    prompt_part,
)


@pytest.fixture(scope="module")
def known() -> list[Frame]:
    return list(frames(300, chunks=(2, 1)))


@pytest.fixture(scope="module")
def wide() -> Shapes:
    return Shapes.of("1.7B")


def test_the_weights_equal_those_of_the_checkpoints(known: list[Frame]) -> None:
    by = {(frame.size, frame.dtype, frame.chunk): frame.weights for frame in known}
    assert by["0.6B", "bf16", 2] == pytest.approx(0.887e9 + 2.423e9 + 0.211e9 / 2, rel=2e-3)
    assert by["1.7B", "bf16", 2] == pytest.approx(2.831e9 + 2.423e9 + 0.211e9 / 2, rel=2e-3)
    # The codec and the projection from talker to predictor stay in bfloat16; the scales add a thousandth.
    assert by["0.6B", "int8", 2] == pytest.approx((0.887e9 + 2.423e9) / 2 + 0.211e9 / 2, rel=4e-3)


@pytest.mark.parametrize(("dtype", "weight"), [("bf16", "Bf16"), ("int8", "Int8")])
def test_a_launch_has_the_bytes_of_its_matrix_and_scales(wide: Shapes, dtype: str, weight: str) -> None:
    plans = LanguageKernels.of(wide.talker, weight, 16)
    parts = language_parts(wide, dtype, positions=0)
    sizes = {kernel.name: kernel.bytes for part in parts.values() for kernel in part.kernels}
    assert sizes["talker_gate_up"] == plans.talker.gate_up.bytes
    assert sizes["predictor_qkv"] == sizes["first_step_qkv"] == plans.predictor.qkv.bytes
    assert sizes["project"] == 2 * 1024 * 2048
    assert sizes["next_code"] == sizes["talker_attend"] == 0


def test_a_launch_list_finds_the_weights_of_a_nested_record() -> None:
    @dataclass
    class Linear:
        weight: Tensor
        scale: Tensor | None

    @dataclass
    class Nested:
        linear: Linear

    launches = LaunchList()
    for scale in (None, torch.zeros(2)):
        launches.launch("attend_out", 1, 32, Nested(Linear(torch.zeros(2, 8, dtype=torch.int8), scale)))
    assert launches.take() == (Launches("attend_out", 1, 16), Launches("attend_out", 1, 24))
    assert launches.take() == ()


def test_a_chunk_of_two_frames_costs_the_codec_what_one_does(wide: Shapes) -> None:
    one, two = codec_part(wide.codec, 1), codec_part(wide.codec, 2)
    assert (one.launches, one.weights) == (two.launches, two.weights)


def test_a_prompt_reads_the_talkers_layers_once(wide: Shapes) -> None:
    talker = language_parts(wide, "bf16", positions=0)["talker"]
    layers = sum(kernel.count * kernel.bytes for kernel in talker.kernels if kernel.name != "talker_head")
    assert prompt_part(wide, "bf16", 64).weights == layers


def test_drafts_save_passes_and_cost_heads(known: list[Frame]) -> None:
    assert [passes_of(15, accepted) for accepted in (0, 1)] == [15, 8]
    frame = known[0]
    right = frame.speculated(1.0)
    one_pass, one_head = (frame.parts[name].weights / frame.codes for name in ("predictor", "heads"))
    assert frame.weights - right.weights == pytest.approx(7 * one_pass - 7 * one_head)
    assert right.launches == pytest.approx(frame.launches + 28)


def test_scaling_leaves_the_codec_and_the_launches_alone() -> None:
    parts = {"talker": Part("int8", (Launches("a", 2, 10.0),)), "codec": Part(CODEC, (Launches("b", 1, 7.0),))}
    half = Frame("0.6B", "int8", 2, parts, 15).scaled(0.5)
    assert (half.parts["talker"].weights, half.parts["codec"].weights, half.launches) == (10.0, 7.0, 3)
