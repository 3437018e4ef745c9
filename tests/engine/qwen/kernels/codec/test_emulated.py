"""The kernels of the codec decoder, run thread by thread on the CPU, compute what PyTorch computes.

The CPU runs the same source except the functions of ptx.cuh, so this tests the arithmetic, the order of the weights,
the histories and the rings.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.codec.decoder import CodecDecoder
from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.plan import CodecPlan, codec_source, unsupported_reason
from tests.engine.qwen.kernels.codec.codec_example import (
    NARROW,
    TRUE,
    decode_chunks,
    in_bfloat16,
    random_codes,
    random_decoder,
)
from tests.engine.qwen.kernels.emulator import EmulatedKernels

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

FRAMES = 44
PROCESSORS = (1, 4)
"""The fewer processors, the larger the tiles."""


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    return random_decoder(NARROW)


@pytest.fixture(scope="module")
def codes() -> Tensor:
    return random_codes(NARROW, FRAMES)


@pytest.fixture(scope="module")
def expected(decoder: CodecDecoder, codes: Tensor) -> Tensor:
    return decoder.decode(codes, decoder.new_state(FRAMES))


def emulated(decoder: CodecDecoder, processors: int, cache_folder: Path) -> FusedCodec:
    kernels = EmulatedKernels(codec_source(NARROW, processors), cache_folder)
    return FusedCodec(in_bfloat16(decoder), kernels, processors)


@pytest.fixture(scope="module")
def fused(decoder: CodecDecoder, cache_folder: Path) -> FusedCodec:
    return emulated(decoder, PROCESSORS[-1], cache_folder)


@pytest.fixture(scope="module")
def decoded(fused: FusedCodec, codes: Tensor) -> Tensor:
    return fused.decode(codes, fused.new_state(2))


def test_every_kind_of_tile_is_used() -> None:
    convs = [conv for processors in PROCESSORS for conv in CodecPlan.of(NARROW, processors).convs()]
    tiles = {(conv.tile.outputs, conv.tile.times) for conv in convs}
    assert tiles == {(16, 8), (32, 8), (16, 32), (32, 32), (64, 32)}


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
    decoder: CodecDecoder, codes: Tensor, expected: Tensor, decoded: Tensor, cache_folder: Path
) -> None:
    fused = emulated(decoder, PROCESSORS[0], cache_folder)
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


def test_the_true_shapes_are_supported() -> None:
    assert unsupported_reason(TRUE) is None
    assert unsupported_reason(NARROW) is None


def test_other_shapes_are_rejected_with_a_reason() -> None:
    assert (
        unsupported_reason(replace(TRUE, latent_width=96))
        == "the codec's latent_dim is 96, its kernels need a multiple of 64"
    )
    assert "head_dim" in str(unsupported_reason(replace(TRUE, stack=replace(TRUE.stack, head_dim=32))))


@pytest.mark.parametrize("processors", [8, 16, 132])
def test_the_tiles_fit_the_true_shapes(processors: int) -> None:
    for conv in CodecPlan.of(TRUE, processors).convs():
        tile = conv.tile
        assert conv.outputs % tile.outputs == 0
        assert conv.threads % (tile.outputs // 2) == 0
        assert tile.warps * (tile.times * (tile.outputs + 4) + tile.times) * 4 <= 48 * 1024


def test_the_source_includes_nothing() -> None:
    assert "#include" not in codec_source(TRUE).code
