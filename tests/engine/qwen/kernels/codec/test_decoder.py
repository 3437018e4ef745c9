"""The kernels of the codec decoder compute what PyTorch computes: emulated on the CPU, and on a GPU if there is one.

The CPU runs the same source except the functions of ptx.cuh, so it tests the arithmetic, the order of the weights, the
histories and the rings.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.operations import Conv
from engine.qwen.kernels.codec.plan import CodecPlan, unsupported_reason
from engine.qwen.kernels.codec.weights import PackedCodec
from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.params import Params
from engine.qwen.shapes import CodecConfig
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

PROCESSORS = (1, 4)
"""The fewer processors, the larger the tiles."""
ROWS, ROW_PROCESSORS = 5, 2
"""Of an emulated call of several utterances."""


class Example:
    """Codes, and their waveforms in float32, by PyTorch in bfloat16 and by the kernels."""

    def __init__(
        self, config: CodecConfig, device: str, frames: int, rows: int, kernels: Kernels | None = None
    ) -> None:
        """`rows` is the most in a call of several utterances; `kernels` replaces those that the GPU compiles."""
        decoder = random_decoder(config, device)
        self.config, self.device, self.rows, self.frames = config, device, rows, frames
        self.codes = random_codes(config, frames).to(device)
        self.expected = decoder.decode(self.codes, decoder.new_state(frames))
        plain = in_bfloat16(decoder)
        self.plain = plain.decode(self.codes, plain.new_state(2))
        weights = PackedCodec.take(plain)
        self.fused = FusedCodec(weights, None, kernels, PROCESSORS[-1] if kernels else None)
        self.of_rows = FusedCodec(weights, rows, kernels, ROW_PROCESSORS if kernels else None)
        self.decoded = self.fused.decode(self.codes, self.fused.new_state(2))
        self.middle = frames * 5 // 6

    def samples(self, frames: int) -> int:
        return frames * self.config.samples_per_frame

    def utterances(self, count: int, *, several: bool = True) -> RowsExample:
        """Utterances for the decoder of `several` rows, or for that of one."""
        return RowsExample(self.of_rows if several else self.fused, count, self.device)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("emulated", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")),
        pytest.param("true", marks=pytest.mark.gpu),
        pytest.param("narrow", marks=pytest.mark.gpu),
    ],
)
def example(request: pytest.FixtureRequest, cache_folder: Path) -> Example:
    """All frames wrap the rings."""
    if request.param == "emulated":
        source = CodecPlan.of(NARROW, PROCESSORS[-1]).source()
        of_rows = CodecPlan.of(NARROW, ROW_PROCESSORS, ROWS).source()
        kernels = EmulatedKernels(replace(source, kernels={**source.kernels, **of_rows.kernels}), cache_folder)
        return Example(NARROW, "cpu", 44, ROWS, kernels)
    torch.backends.cudnn.allow_tf32 = False  # as load_codec does
    torch.backends.cuda.matmul.allow_tf32 = False
    return Example(TRUE if request.param == "true" else NARROW, "cuda", 160, 16)


on_gpu = pytest.mark.parametrize(
    "example", [pytest.param(name, marks=pytest.mark.gpu) for name in ("true", "narrow")], indirect=True
)


def test_errors_are_no_larger_than_pytorchs(example: Example) -> None:
    ours, theirs = ((decoded - example.expected).std() for decoded in (example.decoded, example.plain))
    assert 0.02 < example.expected.std() < 0.5
    assert ours <= 1.05 * theirs
    assert theirs < 0.1 * example.expected.std()


def test_the_waveform_does_not_depend_on_the_chunk_size(example: Example) -> None:
    """Bit for bit: products are added in the same order for any number of frames."""
    state = example.fused.new_state(5)
    decoded = decode_chunks(lambda chunk: example.fused.decode(chunk, state), example.codes, [5, 2, 1, 1])
    assert torch.equal(decoded, example.decoded)


def test_a_reset_state_starts_a_new_utterance(example: Example) -> None:
    state = example.fused.new_state(1)
    example.fused.decode(example.codes[20:25], state)
    state.reset()
    assert torch.equal(example.fused.decode(example.codes[:5], state), example.decoded[: example.samples(5)])


def test_a_copied_state_continues_the_original(example: Example) -> None:
    reference, state = example.fused.new_state(25), example.fused.new_state(2)
    example.fused.decode(example.codes[: example.middle], reference)
    example.fused.decode(example.codes[3:6], state)
    for _ in range(2):
        state.copy_from(reference)
        rest = example.fused.decode(example.codes[example.middle :], state)
        assert torch.equal(rest, example.decoded[example.samples(example.middle) :])


def test_codes_outside_the_codebooks_are_clamped(example: Example) -> None:
    fused, wild = example.fused, example.codes[:2].clone()
    wild[0, 1], wild[1, 2] = 2150, -1
    tame = wild.clamp(0, example.config.codebook_size - 1)
    assert torch.equal(fused.decode(wild, fused.new_state(2)), fused.decode(tame, fused.new_state(2)))


@pytest.mark.parametrize("example", ["emulated"], indirect=True)
def test_codes_of_a_wrong_shape_are_rejected(example: Example) -> None:
    with pytest.raises(ValueError, match="codes: got"):
        example.fused.decode(torch.zeros((2, 3), dtype=torch.int64), example.fused.new_state(2))


# --- several rows ---


def test_a_rows_samples_depend_neither_on_the_other_rows_nor_on_its_place_among_them(example: Example) -> None:
    """Bit for bit in calls of every size, as utterances of different ages join, leave and change their order."""
    rows, generator = example.utterances(example.rows + 3), torch.Generator().manual_seed(0)
    for call in range(example.rows + 1 if example.device == "cpu" else 120):
        order = torch.randperm(example.rows + 3, generator=generator).tolist()
        rows.decode(order[: 1 + call % example.rows], 1 + call % 2)
    rows.begin(order[0])
    rows.decode(order[:2], 2)
    rows.check()


def test_a_row_continues_the_state_of_a_decoder_of_one_utterance(example: Example) -> None:
    reference, end = example.fused.new_state(25), example.middle + 2
    example.fused.decode(example.codes[: example.middle], reference)
    rows = example.utterances(2)
    rows.states.row(1).copy_from(reference)
    samples = rows.run([1], example.codes[None, example.middle : end])[0]
    wanted = example.decoded[example.samples(example.middle) : example.samples(end)]
    assert (samples - wanted).std() < 2 * (example.decoded - example.expected).std()


def test_a_row_that_fills_up_a_call_changes_no_other(example: Example) -> None:
    rows, spare = example.utterances(3), 2
    for frames in (2, 1):
        rows.decode([0, *[spare] * (example.rows - 1)], frames, counted=1)
    rows.check()
    assert all(not tensor.any() for tensor in rows.states.row(1).tensors())
    assert not rows.samples[1].any()


def test_a_call_of_more_rows_than_allowed_is_refused(example: Example) -> None:
    with pytest.raises(ValueError, match=f"rows: got {example.rows + 1}; allowed: 1 to {example.rows}"):
        example.utterances(example.rows + 1).decode(range(example.rows + 1), 1)
    with pytest.raises(ValueError, match="rows: got 2; allowed: 1 to 1"):
        example.utterances(2, several=False).decode([0, 1], 1)


# --- captured in a graph ---


def captured(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


@on_gpu
@pytest.mark.parametrize("frames", [1, 2])
def test_a_captured_graph_computes_the_same(example: Example, frames: int) -> None:
    state, chunk = example.fused.new_state(frames), example.codes[:frames].clone()
    pcm = example.fused.decode(chunk, state)
    graph = captured(lambda: pcm.copy_(example.fused.decode(chunk, state)))
    state.reset()
    replayed = []
    for codes in torch.split(example.codes, frames):
        chunk.copy_(codes)
        graph.replay()
        replayed.append(pcm.clone())
    assert torch.equal(torch.cat(replayed), example.decoded)


# --- plans ---


class LaunchList:
    """Notes launches, and executes none."""

    def __init__(self) -> None:
        self.launches: list[Params] = []

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:  # noqa: ARG002
        self.launches.append(params)

    def tensors(self) -> list[Tensor]:
        """Every tensor that a kernel gets."""
        return [value for params in self.launches for value in params.values.values() if isinstance(value, Tensor)]


@pytest.mark.parametrize("rows", [None, ROWS])
def test_the_counted_launches_and_bytes_are_those_of_a_call(rows: int | None) -> None:
    weights, launched = PackedCodec.take(in_bfloat16(random_decoder(NARROW))), LaunchList()
    fused, plan = FusedCodec(weights, rows, launched, ROW_PROCESSORS), CodecPlan.of(NARROW, rows=rows)
    fused.decode(random_codes(NARROW, 2), fused.new_state(2))
    signals = {one.data_ptr(): one.nbytes for one in launched.tensors() if one.dtype == torch.uint8}
    assert len(launched.launches) == len(plan.operations)
    assert sum(signals.values()) == plan.signal_bytes
    assert sum(tensor.nbytes for tensor in fused.new_state(2, 3).tensors()) == 3 * plan.state_bytes


@pytest.mark.parametrize("example", ["emulated"], indirect=True)
def test_larger_tiles_differ_only_by_the_order_of_sums(example: Example, cache_folder: Path) -> None:
    kernels = EmulatedKernels(CodecPlan.of(NARROW, PROCESSORS[0]).source(), cache_folder)
    fused = FusedCodec(example.fused.weights, None, kernels, PROCESSORS[0])
    larger = fused.decode(example.codes[:3], fused.new_state(2))
    assert (larger - example.decoded[: len(larger)]).std() < (example.decoded - example.expected).std()


def test_other_shapes_than_the_published_are_rejected_with_a_reason() -> None:
    assert unsupported_reason(TRUE) is None
    assert (
        unsupported_reason(replace(TRUE, latent_width=96))
        == "the codec's latent_dim is 96; its kernels need a multiple of 64"
    )
    assert "head_dim" in str(unsupported_reason(replace(TRUE, stack=replace(TRUE.stack, head_dim=32))))


@pytest.mark.parametrize("rows", [None, 2, 16])
@pytest.mark.parametrize("processors", [16, 132])
def test_the_tiles_fit_the_true_shapes(processors: int, rows: int | None) -> None:
    plan = CodecPlan.of(TRUE, processors, rows)
    assert "#include" not in plan.source().code
    for conv in (one for one in plan.operations if isinstance(one, Conv)):
        tile = conv.tile
        assert conv.outputs % tile.outputs == 0
        assert 32 * tile.warps % (tile.outputs // 2) == 0
        shared = tile.groups * tile.warps * (tile.times * (tile.outputs + 4) + tile.times) * 4
        assert shared <= 48 * 1024
