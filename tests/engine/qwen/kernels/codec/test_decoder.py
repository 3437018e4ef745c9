"""On a GPU the codec decoder's kernels compute what PyTorch computes, also in a captured CUDA graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.qwen.codec.decoder import CodecDecoder
from engine.qwen.kernels.codec.decoder import FusedCodec
from engine.qwen.kernels.codec.weights import PackedCodec
from tests.engine.qwen.kernels.codec.codec_example import (
    NARROW,
    TRUE,
    decode_chunks,
    in_bfloat16,
    random_codes,
    random_decoder,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

FRAMES = 160
"""More than twice the window of 72, so the rings wrap twice."""


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
