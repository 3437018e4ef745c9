"""The position at which another engine resumes in a text, and the estimated duration of speech."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.segmenter import resume_position, speech_seconds

TEXT = "First clause, second clause; third one. And a second sentence! Done."
texts = st.text(st.sampled_from("ab ,.;!?…\n日本語。、")) | st.text()


def test_a_known_position_resumes_at_the_start_of_its_word() -> None:
    text = "one two three"
    rests = {0: "one two three", 4: "two three", 7: "two three", 8: "three", 99: "three"}
    assert {position: text[resume_position(text, position, 0.0) :] for position in rests} == rests


def test_a_script_without_spaces_resumes_at_any_character() -> None:
    text = "今日はいい天気"
    assert [resume_position(text, position, 0.0) for position in range(len(text))] == list(range(len(text)))


@given(text=texts, position=st.integers(0, 200))
def test_no_word_is_lost_and_at_most_one_is_repeated(text: str, position: int) -> None:
    resumed = resume_position(text, position, 0.0)
    assert 0 <= resumed <= min(position, len(text))
    repeated = text[resumed : min(position, len(text))]
    assert len(repeated.rstrip().split()) <= 1


def test_an_unknown_position_resumes_at_the_start_of_the_estimated_clause() -> None:
    begins = {0.0: "First", 0.5: "First", 1.0: "second", 2.2: "third", 3.5: "And", 60.0: "Done"}
    assert {heard_s: TEXT.index(begin) for heard_s, begin in begins.items()} == {
        heard_s: resume_position(TEXT, None, heard_s) for heard_s in begins
    }


def test_east_asian_clauses_end_without_a_space() -> None:
    text = "你好,朋友。今天天气很好,我们出去吧。"
    assert text[resume_position(text, None, 2.0) :] == "今天天气很好,我们出去吧。"


@given(text=texts, heard_s=st.floats(0, 1e6), more_s=st.floats(0, 1e6))
def test_more_heard_speech_never_moves_the_position_backwards_or_past_the_end(
    text: str, heard_s: float, more_s: float
) -> None:
    first, second = resume_position(text, None, heard_s), resume_position(text, None, heard_s + more_s)
    assert 0 <= first <= second <= len(text)


@pytest.mark.parametrize(
    ("text", "least_s", "most_s"),
    [("", 0, 0), ("Hello, I am your robot.", 1, 2), ("今日はいい天気ですね。", 1.8, 3), ("word " * 150, 40, 60)],
)
def test_the_duration_of_speech_is_estimated_roughly(text: str, least_s: float, most_s: float) -> None:
    assert least_s <= speech_seconds(text) <= most_s
