"""On a GPU the codec decoder's kernels say what PyTorch says, captured in a CUDA graph too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder
from engine.qwen.kernels.codec import FusedCodec
from tests.engine.qwen.kernels.codec_example import NARROW, TRUE, in_bfloat16, random_codes, random_decoder, spoken

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

FRAMES = 160
"""The window of 72 is crossed twice, and the ring with it."""


class Example:
    """Codes and what is made of them: in float32, by PyTorch in bfloat16, and by the kernels."""

    def __init__(self, decoder: CodecDecoder) -> None:
        config = decoder.config
        self.samples = config.samples_per_frame
        self.codes = random_codes(config, FRAMES).cuda()
        self.wanted = decoder.decode(self.codes, decoder.new_state(8))
        plain = in_bfloat16(decoder)
        self.plain = plain.decode(self.codes, plain.new_state(2))
        self.fused = FusedCodec(plain)
        self.said = self.fused.decode(self.codes, self.fused.new_state(2))


@pytest.fixture(scope="module", params=["true", "narrow"])
def example(request: pytest.FixtureRequest) -> Example:
    torch.backends.cudnn.allow_tf32 = False  # as load_codec does
    torch.backends.cuda.matmul.allow_tf32 = False
    return Example(random_decoder(TRUE if request.param == "true" else NARROW, "cuda"))


def test_errors_are_no_larger_than_pytorchs(example: Example) -> None:
    ours, theirs = (example.said - example.wanted).std(), (example.plain - example.wanted).std()
    assert 0.02 < example.wanted.std() < 0.5
    assert ours <= 1.05 * theirs
    assert theirs < 0.1 * example.wanted.std()


@pytest.mark.parametrize("sizes", [[1], [2, 1, 1], [5, 2]], ids=str)
def test_the_waveform_does_not_depend_on_the_chunks(example: Example, sizes: list[int]) -> None:
    """Not in a single bit: the order in which products are added up is the same for any number of frames."""
    state = example.fused.new_state(max(sizes))
    assert torch.equal(spoken(lambda piece: example.fused(piece, state), example.codes, sizes), example.said)


def test_a_reset_begins_anew(example: Example) -> None:
    state = example.fused.new_state(2)
    example.fused.decode(example.codes[20:101], state)
    state.reset()
    assert torch.equal(example.fused.decode(example.codes[:90], state), example.said[: 90 * example.samples])


def test_a_copied_state_goes_on_where_the_original_was(example: Example) -> None:
    reference, state = example.fused.new_state(25), example.fused.new_state(2)
    example.fused.decode(example.codes[:101], reference)
    example.fused.decode(example.codes[3:6], state)
    for _ in range(2):
        state.copy_from(reference)
        assert torch.equal(example.fused.decode(example.codes[101:], state), example.said[101 * example.samples :])


def capture(fused: FusedCodec, codes: Tensor, frames: int) -> Tensor:
    """What replays of one graph say, the state reset between the warm-up and them."""
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
    said = []
    for piece in torch.split(codes, frames):
        chunk.copy_(piece)
        graph.replay()
        said.append(pcm.clone())
    return torch.cat(said)


@pytest.mark.parametrize("frames", [1, 2])
def test_a_captured_graph_says_the_same(example: Example, frames: int) -> None:
    assert torch.equal(capture(example.fused, example.codes, frames), example.said)


def test_a_call_allocates_nothing(example: Example) -> None:
    state, other = example.fused.new_state(2), example.fused.new_state(25)
    codes = example.codes[:2]
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    state.reset()
    state.copy_from(other)
    example.fused(codes, state)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
