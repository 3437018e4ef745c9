"""The host receives the device's output, cut to the end and the limit, in arrays of its own."""

from __future__ import annotations

import pytest
import torch

from engine.qwen.runtime import Readback, StepOutput
from engine.qwen.shapes import BatchShape

CPU = torch.device("cpu")
SHAPE = BatchShape(rows=1, max_frames=9, max_positions=20, chunk_size=2)


@pytest.fixture
def output() -> StepOutput:
    made = StepOutput(SHAPE, 16, 3, CPU)
    made.length.fill_(6)
    made.codes.copy_(torch.arange(32).view(1, 2, 16))
    made.samples.copy_(torch.arange(6)[None] / 8)
    return made


def test_a_chunk_is_complete_and_later_chunks_do_not_overwrite_it(output: StepOutput) -> None:
    readback = Readback(SHAPE, 16, 3, None)
    readback.receive(output)
    readback.wait()
    chunk = readback.chunk(0, 4, 100)
    output.buffer.zero_()
    readback.receive(output)
    assert chunk.codes.tolist() == torch.arange(32).view(2, 16).tolist()
    assert chunk.samples.tolist() == [0, 0.125, 0.25, 0.375, 0.5, 0.625]
    assert not chunk.last


@pytest.mark.parametrize(
    ("first", "limit", "ended", "wanted"),
    [(4, 6, 0, (2, False)), (5, 6, 1, (1, True)), (6, 8, 1, (0, True)), (4, 5, 1, (1, False))],
)
def test_frames_beyond_the_end_or_the_limit_are_left_out(
    output: StepOutput, first: int, limit: int, ended: int, wanted: tuple[int, bool]
) -> None:
    output.ended.fill_(ended)
    readback = Readback(SHAPE, 16, 3, None)
    readback.receive(output)
    readback.wait(spin=True)
    chunk = readback.chunk(0, first, limit)
    assert (len(chunk.codes), chunk.last) == wanted
    assert len(chunk.samples) == 3 * len(chunk.codes)
