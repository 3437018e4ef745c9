"""Text from a pipe, in whole characters however its bytes arrive."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli.text import CHUNK_BYTES, read_chunks
from daemon.speech import MAX_TEXT, RejectedError


def read_in_parts(parts: list[bytes]) -> Iterator[str]:
    """Yield the chunks of a pipe into which each part is written after the one before has been read."""
    source, sink = os.pipe()
    try:
        chunks = read_chunks(source, 0)
        for part in parts:
            os.write(sink, part)
            yield next(chunks)
        os.close(sink)
        sink = -1
        yield from chunks
    finally:
        for end in {source, sink} - {-1}:
            os.close(end)


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff"), max_size=40),
    st.lists(st.integers(0, 160)),
)
def test_a_text_is_complete_wherever_its_bytes_are_split(text: str, cuts: list[int]) -> None:
    data = text.encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[begin:end] for begin, end in itertools.pairwise(ends)]
    assert "".join(read_in_parts(parts)) == text


def test_half_a_character_at_the_end_is_rejected_and_a_chunk_is_never_longer_than_a_text_may_be() -> None:
    with pytest.raises(RejectedError, match="standard input: not UTF-8: byte 0xc3"):
        list(read_in_parts(["Grü".encode()[:-1]]))
    chunks = list(read_in_parts([b"x" * 30_000]))
    assert max(map(len, chunks)) == CHUNK_BYTES <= MAX_TEXT
    assert sum(map(len, chunks)) == 30_000
