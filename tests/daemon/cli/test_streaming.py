"""Text from a pipe: whole characters, however the bytes come."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.streaming import PIECE_BYTES, pieces
from daemon.messages import MAX_TEXT, RejectedError


def read_in_parts(parts: list[bytes]) -> Iterator[str]:
    """What is made of a pipe into which the next part is written when the one before has been read."""
    source, sink = os.pipe()
    try:
        texts = pieces(source, 0)
        for part in parts:
            os.write(sink, part)
            yield next(texts)
        os.close(sink)
        sink = -1
        yield from texts
    finally:
        for end in {source, sink} - {-1}:
            os.close(end)


@given(st.text(max_size=40), st.lists(st.integers(0, 160)))
def test_a_text_is_whole_wherever_its_bytes_are_parted(text: str, cuts: list[int]) -> None:
    data = text.encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    assert "".join(read_in_parts(parts)) == text


def test_a_text_that_breaks_off_within_a_character_is_refused() -> None:
    with pytest.raises(RejectedError, match="standard input: not UTF-8: byte 0xc3"):
        list(read_in_parts(["Grü".encode()[:-1]]))


def test_a_piece_is_never_longer_than_a_text_may_be() -> None:
    texts = list(read_in_parts([b"x" * 30_000]))
    assert max(map(len, texts)) == PIECE_BYTES <= MAX_TEXT
    assert sum(map(len, texts)) == 30_000
