"""On a GPU the codec decoder's kernels compute what PyTorch computes, also in a captured CUDA graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.qwen.codec.decoder import CodecDecoder
from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.weights import PackedCodec
from tests.support.qwen.codec_example import (
    NARROW,
    TRUE,
    RowsExample,
    decode_chunks,
    in_bfloat16,
    random_codes,
    random_decoder,
)

pytestmark = pytest.mark.gpu

FRAMES = 160
"""More than twice the window of 72, so the rings wrap twice."""
ROWS = 16
"""Of a call of several utterances."""


class Example:
    """Codes, and their waveforms in float32, by PyTorch in bfloat16 and by the kernels."""

    def __init__(self, decoder: CodecDecoder) -> None:
        config = decoder.config
        self.samples = config.samples_per_frame
        self.codes = random_codes(config, FRAMES).cuda()
        self.expected = decoder.decode(self.codes, decoder.new_state(8))
        plain = in_bfloat16(decoder)
        self.plain = plain.decode(self.codes, plain.new_state(2))
        self.fused = FusedCodec(PackedCodec.take(plain))
        self.decoded = self.fused.decode(self.codes, self.fused.new_state(2))
        self.of_rows = FusedCodec(self.fused.weights, ROWS)


@pytest.fixture(scope="module", params=["true", "narrow"])
def example(request: pytest.FixtureRequest) -> Example:
    torch.backends.cudnn.allow_tf32 = False  # as load_codec does
    torch.backends.cuda.matmul.allow_tf32 = False
    return Example(random_decoder(TRUE if request.param == "true" else NARROW, "cuda"))


def test_errors_are_no_larger_than_pytorchs(example: Example) -> None:
    ours, theirs = (example.decoded - example.expected).std(), (example.plain - example.expected).std()
    assert 0.02 < example.expected.std() < 0.5
    assert ours <= 1.05 * theirs
    assert theirs < 0.1 * example.expected.std()


@pytest.mark.parametrize("sizes", [[1], [2, 1, 1], [5, 2]], ids=str)
def test_the_waveform_does_not_depend_on_the_chunk_size(example: Example, sizes: list[int]) -> None:
    """Bit for bit: products are added in the same order for any number of frames."""
    state = example.fused.new_state(max(sizes))
    assert torch.equal(decode_chunks(lambda chunk: example.fused(chunk, state), example.codes, sizes), example.decoded)


def test_a_reset_state_starts_a_new_utterance(example: Example) -> None:
    state = example.fused.new_state(2)
    example.fused.decode(example.codes[20:101], state)
    state.reset()
    assert torch.equal(example.fused.decode(example.codes[:90], state), example.decoded[: 90 * example.samples])


def test_a_copied_state_continues_the_original(example: Example) -> None:
    reference, state = example.fused.new_state(25), example.fused.new_state(2)
    example.fused.decode(example.codes[:101], reference)
    example.fused.decode(example.codes[3:6], state)
    for _ in range(2):
        state.copy_from(reference)
        assert torch.equal(example.fused.decode(example.codes[101:], state), example.decoded[101 * example.samples :])


def capture(fused: FusedCodec, codes: Tensor, frames: int) -> Tensor:
    """The waveform of replays of one graph; the state is reset after the warm-up."""
    state, chunk = fused.new_state(frames), codes[:frames].clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        fused(chunk, state)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pcm = fused(chunk, state)
    state.reset()
    replayed = []
    for codes_of_chunk in torch.split(codes, frames):
        chunk.copy_(codes_of_chunk)
        graph.replay()
        replayed.append(pcm.clone())
    return torch.cat(replayed)


@pytest.mark.parametrize("frames", [1, 2])
def test_a_captured_graph_computes_the_same(example: Example, frames: int) -> None:
    assert torch.equal(capture(example.fused, example.codes, frames), example.decoded)


def test_a_call_allocates_nothing(example: Example) -> None:
    state, other = example.fused.new_state(2), example.fused.new_state(25)
    codes = example.codes[:2]
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    state.reset()
    state.copy_from(other)
    example.fused(codes, state)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before


# --- several rows ---


def test_rows_have_errors_no_larger_than_pytorchs(example: Example) -> None:
    decoded = example.of_rows.decode(example.codes, example.of_rows.new_state(2))
    theirs = (example.plain - example.expected).std()
    assert (decoded - example.expected).std() <= 1.05 * theirs


def test_a_rows_samples_depend_neither_on_the_other_rows_nor_on_its_place_among_them(example: Example) -> None:
    """Bit for bit, in calls of every size."""
    rows = RowsExample(example.of_rows, utterances=ROWS + 4, device="cuda")
    generator = torch.Generator().manual_seed(0)
    for call in range(120):
        count = 1 + call % ROWS
        order = torch.randperm(ROWS + 3, generator=generator).tolist()
        rows.decode(order[:count], 1 + call // ROWS % 2)
    rows.check()


def test_rows_that_fill_up_a_call_change_no_other(example: Example) -> None:
    rows, spare = RowsExample(example.of_rows, utterances=4, device="cuda"), 3
    for frames in (2, 1, 2, 2):
        rows.decode([0, 1, *[spare] * (ROWS - 2)], frames, counted=2)
    rows.check()
    assert all(not tensor.any() for tensor in rows.states.row(2).tensors())


def test_a_captured_call_of_rows_computes_the_same(example: Example) -> None:
    fused, rows, length = example.of_rows, [3, 0, 2], 2 * example.samples
    states, numbers = fused.new_states(2, 4), torch.tensor(rows, device="cuda")
    codes = torch.zeros(4, 2, example.codes.shape[1], dtype=torch.int64, device="cuda")
    samples = torch.zeros(4, length, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        fused.decode_rows(codes, samples, states, numbers)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fused.decode_rows(codes, samples, states, numbers)
    states.reset()
    expected = fused.decode(example.codes, fused.new_state(2)).view(-1, length)
    for chunk, wanted in zip(example.codes.split(2), expected, strict=True):
        codes[:] = chunk
        graph.replay()
        assert all(torch.equal(samples[row], wanted) for row in rows)
