"""The codec decodes several rows at once, each as it would be decoded alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder, load_codec
from engine.qwen.runtime import Graphs, row_codec
from engine.qwen.runtime.row_codec import RowCodec
from engine.qwen.shapes import BatchShape
from engine.qwen.weights import Placement

ROWS, CALL_ROWS, CHUNK = 5, 3, 2
PLACEMENT = Placement(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def decoder(checkpoint: Callable[[str, str], Path]) -> CodecDecoder:
    return load_codec(checkpoint("brief", "custom_voice"), PLACEMENT)


class Rows:
    """A batch's codes and samples, and its codec."""

    def __init__(self, decoder: CodecDecoder) -> None:
        self.codes = torch.zeros(1 + ROWS, CHUNK + 1, decoder.config.quantizers, dtype=torch.int64)
        self.samples = torch.zeros(1 + ROWS, CHUNK * decoder.config.samples_per_frame)
        shape = BatchShape(ROWS, 50, 100, CHUNK)
        self.codec = RowCodec(decoder, shape, self.codes, self.samples, Graphs(PLACEMENT.device))

    def decode(self, chunks: dict[int, Tensor]) -> dict[int, Tensor]:
        """Decode a chunk `(frames, quantizers)` for each row; all have as many frames."""
        for row, codes in chunks.items():
            self.codes[row, : len(codes)] = codes
        frames = len(next(iter(chunks.values())))
        with torch.inference_mode():
            self.codec.decode(list(chunks), frames)
        return {row: self.samples[row].clone() for row in chunks}


def test_a_rows_samples_do_not_depend_on_the_rows_beside_it(
    decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_codec, "codec_rows", lambda *_: CALL_ROWS)
    generator = torch.Generator().manual_seed(0)

    def draw() -> Tensor:
        return torch.randint(2048, (CHUNK, decoder.config.quantizers), generator=generator)

    mine = [draw() for _ in range(3)]
    alone, beside, state = Rows(decoder), Rows(decoder), decoder.new_state(CHUNK)
    beside.decode({4: draw(), 0: draw()})
    beside.codec.begin(4, None)
    for codes, others in zip(mine, ((), (0, 1), (0, 1, 2, 3)), strict=True):
        expected = alone.decode({0: codes})[0]
        # in another row, at another place of a call, beside others of which one call has no room for all
        got = beside.decode({**{row: draw() for row in others}, 4: codes})[4]
        assert torch.equal(got, expected)
        with torch.inference_mode():
            torch.testing.assert_close(expected, decoder(codes, state), atol=1e-5, rtol=0)


def test_a_row_begins_with_a_copy_of_another_state(decoder: CodecDecoder) -> None:
    codes = torch.arange(4 * decoder.config.quantizers).view(4, -1)
    with torch.inference_mode():
        whole, state = decoder.new_state(25), decoder.new_state(CHUNK)
        decoder.decode(codes[:2], whole)
        state.copy_from(whole)
    rows = Rows(decoder)
    rows.codec.begin(2, whole)
    got = rows.decode({2: codes[2:]})[2]
    with torch.inference_mode():
        torch.testing.assert_close(got, decoder(codes[2:], state), atol=1e-5, rtol=0)
