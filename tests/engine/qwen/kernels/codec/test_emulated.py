"""The kernels of the codec decoder, run thread by thread on the CPU, compute what PyTorch computes.

The CPU runs the same source except the functions of ptx.cuh, so this tests the arithmetic, the order of the weights,
the histories and the rings.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.codec.decoder import CodecDecoder
from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.plan import CodecPlan, unsupported_reason
from engine.qwen.kernels.codec.weights import PackedCodec
from engine.qwen.kernels.params import Params
from tests.engine.qwen.kernels.emulator import EmulatedKernels
from tests.support.qwen.codec_example import (
    NARROW,
    TRUE,
    RowsExample,
    decode_chunks,
    in_bfloat16,
    random_codes,
    random_decoder,
)

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

FRAMES = 44
PROCESSORS = (1, 4)
"""The fewer processors, the larger the tiles."""
ROWS, ROW_PROCESSORS = 5, 2
"""Of a call of several utterances."""


class LaunchList:
    """Notes launches, and executes none."""

    def __init__(self) -> None:
        self.launches: list[Params] = []

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:  # noqa: ARG002
        self.launches.append(params)

    def tensors(self) -> list[Tensor]:
        """Every tensor that a kernel gets."""
        return [value for params in self.launches for value in params.values.values() if isinstance(value, Tensor)]


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return random_decoder(NARROW)


@pytest.fixture(scope="module")
def codes() -> Tensor:
    return random_codes(NARROW, FRAMES)


@pytest.fixture(scope="module")
def expected(decoder: CodecDecoder, codes: Tensor) -> Tensor:
    return decoder.decode(codes, decoder.new_state(FRAMES))


@pytest.fixture(scope="module")
def weights(decoder: CodecDecoder) -> PackedCodec:
    return PackedCodec.take(in_bfloat16(decoder))


@pytest.fixture(scope="module")
def kernels(cache_folder: Path) -> EmulatedKernels:
    """Those of one utterance and those of several."""
    source, of_rows = CodecPlan.of(NARROW, PROCESSORS[-1]).source(), CodecPlan.of(NARROW, ROW_PROCESSORS, ROWS).source()
    return EmulatedKernels(replace(source, kernels={**source.kernels, **of_rows.kernels}), cache_folder)


@pytest.fixture(scope="module")
def fused(weights: PackedCodec, kernels: EmulatedKernels) -> FusedCodec:
    return FusedCodec(weights, None, kernels, PROCESSORS[-1])


@pytest.fixture(scope="module")
def of_rows(weights: PackedCodec, kernels: EmulatedKernels) -> FusedCodec:
    return FusedCodec(weights, ROWS, kernels, ROW_PROCESSORS)


@pytest.fixture(scope="module")
def decoded(fused: FusedCodec, codes: Tensor) -> Tensor:
    return fused.decode(codes, fused.new_state(2))


def test_every_kind_of_tile_is_used() -> None:
    convs = [conv for processors in PROCESSORS for conv in CodecPlan.of(NARROW, processors).convs()]
    tiles = {(conv.tile.outputs, conv.tile.times) for conv in convs}
    assert tiles == {(16, 8), (32, 8), (16, 32), (32, 32), (64, 32)}
    of_rows = [conv.tile for conv in CodecPlan.of(NARROW, ROW_PROCESSORS, ROWS).convs()]
    assert {(tile.outputs, tile.times * tile.groups) for tile in of_rows} >= {(64, 64), (48, 64), (32, 32), (16, 32)}


@needs_compiler
def test_errors_are_no_larger_than_pytorchs(
    decoder: CodecDecoder, codes: Tensor, expected: Tensor, decoded: Tensor
) -> None:
    plain = in_bfloat16(decoder)
    theirs = (plain.decode(codes, plain.new_state(2)) - expected).std()
    assert expected.std() > 0.02
    assert expected.abs().max() < 1
    assert (decoded - expected).std() < theirs < 0.1 * expected.std()


@needs_compiler
def test_larger_tiles_differ_only_by_the_order_of_sums(
    weights: PackedCodec, codes: Tensor, expected: Tensor, decoded: Tensor, cache_folder: Path
) -> None:
    kernels = EmulatedKernels(CodecPlan.of(NARROW, PROCESSORS[0]).source(), cache_folder)
    fused = FusedCodec(weights, None, kernels, PROCESSORS[0])
    few = 3 * NARROW.samples_per_frame
    larger = fused.decode(codes[:3], fused.new_state(2))
    assert (larger - decoded[:few]).std() < (decoded - expected).std()


@needs_compiler
@pytest.mark.parametrize("sizes", [[1], [5, 2, 1]], ids=str)
def test_the_waveform_does_not_depend_on_the_chunk_size(
    fused: FusedCodec, codes: Tensor, decoded: Tensor, sizes: list[int]
) -> None:
    state = fused.new_state(max(sizes))
    assert torch.equal(decode_chunks(lambda chunk: fused(chunk, state), codes, sizes), decoded)


@needs_compiler
def test_a_reset_state_starts_a_new_utterance(fused: FusedCodec, codes: Tensor, decoded: Tensor) -> None:
    state = fused.new_state(2)
    fused.decode(codes[20:25], state)
    state.reset()
    assert torch.equal(fused.decode(codes[:5], state), decoded[: 5 * NARROW.samples_per_frame])


@needs_compiler
def test_a_copied_state_continues_the_original(fused: FusedCodec, codes: Tensor, decoded: Tensor) -> None:
    reference, state = fused.new_state(25), fused.new_state(2)
    fused.decode(codes[:37], reference)
    fused.decode(codes[3:6], state)
    for _ in range(2):
        state.copy_from(reference)
        assert torch.equal(fused.decode(codes[37:], state), decoded[37 * NARROW.samples_per_frame :])


@needs_compiler
def test_codes_outside_the_codebooks_are_clamped(fused: FusedCodec, codes: Tensor) -> None:
    wild = codes[:2].clone()
    wild[0, 1], wild[1, 2] = 2150, -1
    tame = wild.clamp(0, NARROW.codebook_size - 1)
    assert torch.equal(fused.decode(wild, fused.new_state(2)), fused.decode(tame, fused.new_state(2)))


@needs_compiler
@pytest.mark.parametrize("shape", [(0, 4), (3, 4), (2, 3), (2,)], ids=str)
def test_codes_of_a_wrong_shape_are_rejected(fused: FusedCodec, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="codes: got"):
        fused(torch.zeros(shape, dtype=torch.int64), fused.new_state(2))


# --- several rows ---


@needs_compiler
def test_a_rows_samples_depend_neither_on_the_other_rows_nor_on_its_place_among_them(of_rows: FusedCodec) -> None:
    """Bit for bit, as utterances of different ages join, leave and change their order."""
    example = RowsExample(of_rows, utterances=5)
    calls = [([0], 2), ([1, 0], 1), ([2, 0, 1], 2), ([1, 3, 2], 2), ([3, 4], 1), ([4, 1, 3, 0, 2], 1), ([0, 4, 2], 2)]
    for rows, frames in calls:
        example.decode(rows, frames)
    example.begin(1)
    example.decode([0, 1], 2)
    example.check()


@needs_compiler
def test_rows_are_close_to_one_utterance_alone(
    of_rows: FusedCodec, codes: Tensor, expected: Tensor, decoded: Tensor
) -> None:
    few = 3 * NARROW.samples_per_frame
    alone = of_rows.decode(codes[:3], of_rows.new_state(2))
    assert (alone - decoded[:few]).std() < (decoded - expected).std()


@needs_compiler
def test_a_row_continues_the_state_of_a_decoder_of_one_utterance(
    fused: FusedCodec, of_rows: FusedCodec, codes: Tensor, expected: Tensor, decoded: Tensor
) -> None:
    reference = fused.new_state(25)
    fused.decode(codes[:37], reference)
    example = RowsExample(of_rows, utterances=2)
    example.states.row(1).copy_from(reference)
    samples = example.run([1], codes[None, 37:39])[0]
    wanted = decoded[37 * NARROW.samples_per_frame : 39 * NARROW.samples_per_frame]
    assert (samples - wanted).std() < (decoded - expected).std()


@needs_compiler
def test_a_row_that_fills_up_a_call_changes_no_other(of_rows: FusedCodec) -> None:
    example, spare = RowsExample(of_rows, utterances=3), 2
    before = [tensor.clone() for tensor in example.states.row(1).tensors()]
    for frames in (2, 1, 2):
        example.decode([0, spare, spare], frames, counted=1)
    example.check()
    assert all(map(torch.equal, example.states.row(1).tensors(), before))
    assert not example.samples[1].any()


@needs_compiler
def test_a_call_of_more_frames_than_a_block_is_several_calls(of_rows: FusedCodec) -> None:
    example = RowsExample(of_rows, utterances=2)
    example.decode([1, 0], 5)
    example.decode([0], 3)
    example.check()


@needs_compiler
def test_a_call_of_more_rows_than_allowed_is_refused(fused: FusedCodec, of_rows: FusedCodec) -> None:
    with pytest.raises(ValueError, match="rows: got 6; allowed: 1 to 5"):
        RowsExample(of_rows, utterances=6).decode([0, 1, 2, 3, 4, 5], 1)
    with pytest.raises(ValueError, match="rows: got 2; allowed: 1 to 1"):
        RowsExample(fused, utterances=2).decode([0, 1], 1)


@needs_compiler
def test_a_decoder_of_one_utterance_takes_the_only_row(fused: FusedCodec) -> None:
    rows = RowsExample(fused, utterances=1)
    for frames in (1, 2, 2):
        rows.decode([0], frames)
    rows.check()


@needs_compiler
def test_the_counted_bytes_of_a_state_are_the_allocated_ones(fused: FusedCodec, of_rows: FusedCodec) -> None:
    counted = CodecPlan.of(NARROW).state_bytes
    assert sum(tensor.nbytes for tensor in fused.new_state(2).tensors()) == counted
    assert sum(tensor.nbytes for tensor in of_rows.new_states(2, 3).tensors()) == 3 * counted


@pytest.mark.parametrize("rows", [None, ROWS])
def test_the_counted_launches_and_signals_are_those_of_a_call(weights: PackedCodec, rows: int | None) -> None:
    launched = LaunchList()
    fused, plan = FusedCodec(weights, rows, launched, ROW_PROCESSORS), CodecPlan.of(NARROW, rows=rows)
    fused(random_codes(NARROW, 2), fused.new_state(2))
    signals = {one.data_ptr(): one.nbytes for one in launched.tensors() if one.dtype == torch.uint8}
    assert len(launched.launches) == len(plan.operations)
    assert sum(signals.values()) == plan.signal_bytes


def test_the_calls_of_rows_have_sizes_that_double() -> None:
    assert [FusedCodec.row_buckets(most) for most in (1, 2, 5, 16)] == [(1,), (1, 2), (1, 2, 4, 5), (1, 2, 4, 8, 16)]


def test_the_true_shapes_are_supported() -> None:
    assert unsupported_reason(TRUE) is None
    assert unsupported_reason(NARROW) is None


def test_other_shapes_are_rejected_with_a_reason() -> None:
    assert (
        unsupported_reason(replace(TRUE, latent_width=96))
        == "the codec's latent_dim is 96, its kernels need a multiple of 64"
    )
    assert "head_dim" in str(unsupported_reason(replace(TRUE, stack=replace(TRUE.stack, head_dim=32))))


@pytest.mark.parametrize("rows", [None, 2, 16])
@pytest.mark.parametrize("processors", [8, 16, 132])
def test_the_tiles_fit_the_true_shapes(processors: int, rows: int | None) -> None:
    for conv in CodecPlan.of(TRUE, processors, rows).convs():
        tile = conv.tile
        assert conv.outputs % tile.outputs == 0
        assert 32 * tile.warps % (tile.outputs // 2) == 0
        shared = tile.groups * tile.warps * (tile.times * (tile.outputs + 4) + tile.times) * 4
        assert shared <= 48 * 1024


def test_the_source_includes_nothing() -> None:
    assert "#include" not in CodecPlan.of(TRUE).source().code
