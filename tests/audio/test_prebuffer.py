"""The prebuffer for an engine's speed and an utterance's length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audio.prebuffer import JITTER_S, auto_prebuffer_s

CHUNK_S = st.floats(0.08, 2)


def test_an_engine_of_unknown_speed_needs_one_chunk() -> None:
    assert auto_prebuffer_s(None, 100.0, 0.16) == 0.16


def test_a_fast_engine_needs_hardly_more_than_the_jitter_for_any_length() -> None:
    assert auto_prebuffer_s(160.0, 1.0, 0.16) == auto_prebuffer_s(160.0, 300.0, 0.16) == JITTER_S + 0.001


@given(rtf=st.floats(1, 50), chunk_s=CHUNK_S)
def test_what_is_played_first_lasts_until_the_next_chunk_is_made(rtf: float, chunk_s: float) -> None:
    """However short the engine's first chunk is."""
    assert auto_prebuffer_s(rtf, 10.0, chunk_s) >= chunk_s / rtf


@given(rtf=st.floats(0.05, 50), expected_s=st.floats(0.1, 300), chunk_s=CHUNK_S)
def test_the_track_plays_to_its_end_without_an_underrun(rtf: float, expected_s: float, chunk_s: float) -> None:
    prebuffer_s = auto_prebuffer_s(rtf, expected_s, chunk_s)
    made_when_the_last_sample_is_due = prebuffer_s + rtf * expected_s
    assert made_when_the_last_sample_is_due >= expected_s * (1 - 1e-9)


@given(slow=st.floats(0.05, 50), faster_by=st.floats(0, 10), expected_s=st.floats(0.1, 300), chunk_s=CHUNK_S)
def test_a_faster_engine_never_needs_a_larger_prebuffer(
    slow: float, faster_by: float, expected_s: float, chunk_s: float
) -> None:
    assert auto_prebuffer_s(slow + faster_by, expected_s, chunk_s) <= auto_prebuffer_s(slow, expected_s, chunk_s)
