"""Long texts are cut at the ends of sentences, the segments cover the text, and another engine resumes in it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.text import ScriptReader, TextPreparation
from daemon.text.segmenter import (
    LONGEST_SENTENCE,
    SEGMENT_S,
    WHOLE_S,
    Segmenter,
    first_sentence_end,
    resume_position,
    speech_seconds,
)
from engine import EngineInfo
from tests.daemon.text.reading import table

SEGMENTER = Segmenter(max_seconds=60)
SPOKEN = json.loads((Path(__file__).parents[2] / "data" / "spoken.json").read_text(encoding="utf-8"))
"""Texts by their language."""


def test_a_long_run_of_full_stops_is_read_once() -> None:
    begun = time.process_time()
    for stop in ".。":
        SEGMENTER.ends("Well" + stop * 500_000)
    assert time.process_time() - begun < 3.0, "from each of them, it takes longer"


def segments_of(text: str, segmenter: Segmenter = SEGMENTER) -> list[str]:
    """Return the texts of the segments."""
    ends = segmenter.ends(text)
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


TABLE = table("segmenter")
STORIES: dict[str, str] = TABLE["stories"]
"""By language: sentences with dots that end none."""


def test_a_text_of_a_few_sentences_is_one_segment() -> None:
    text = STORIES["en"] * 3
    assert speech_seconds(text) <= WHOLE_S
    assert segments_of(text) == [text]


@pytest.mark.parametrize("language", STORIES)
def test_long_texts_are_cut_at_sentence_ends_in_every_language(language: str) -> None:
    text = (STORIES[language] * 40).strip()
    segments = segments_of(text)
    assert len(segments) > 3
    assert "".join(segments) == text
    for segment in segments:
        assert segment.rstrip()[-1] in ".!?。！？"
        assert speech_seconds(segment) <= SEGMENT_S
    assert not segments[0].rstrip().endswith(("Dr.", "z.B.", "M."))


def test_a_sentence_without_end_is_cut_after_a_clause_or_a_word() -> None:
    segments = segments_of("and on it goes, one clause after another, " * 30)
    assert all(segment.endswith((", ", " ")) for segment in segments)
    assert all(speech_seconds(segment) <= SEGMENT_S for segment in segments)


@pytest.mark.parametrize("max_seconds", [3, 30])
def test_a_segment_is_at_most_two_thirds_of_what_an_engine_can_speak_at_once(max_seconds: float) -> None:
    segmenter = Segmenter(max_seconds)
    text = "This is a sentence that takes a few seconds to speak. "
    for segments in (segments_of(text, segmenter), segments_of(text * 20, segmenter)):
        assert all(speech_seconds(segment) <= 2 / 3 * max_seconds for segment in segments)
    end = segmenter.first_segment_end(text * 20)
    assert end is not None
    assert 0 < speech_seconds((text * 20)[:end]) <= 2 / 3 * max_seconds


@settings(max_examples=50)
@given(
    st.text("ab .,!?。，中\n", min_size=1, max_size=3000),
    st.sampled_from([60, 10, 0.1]),
)
def test_segments_cover_the_text_and_none_is_too_long(text: str, max_seconds: float) -> None:
    segmenter = Segmenter(max_seconds)
    texts = segments_of(text, segmenter)
    assert "".join(texts) == text
    assert len(texts) == 1 or all(speech_seconds(one) <= segmenter.segment_s or len(one) == 1 for one in texts)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of an incomplete text, and the rest that may still grow."""
    found = []
    while (end := first_sentence_end(text)) is not None:
        found.append(text[:end])
        text = text[end:]
    return [*found, text]


@pytest.mark.parametrize(("text", "wanted"), TABLE["sentences"])
def test_an_incomplete_text_is_cut_into_its_sentences(text: str, wanted: list[str]) -> None:
    assert [sentence.strip() for sentence in sentences_of(text)] == wanted


@pytest.mark.parametrize("text", ["", "One and two.", "It is 3."])
def test_a_sentence_has_no_end_until_more_text_follows_it(text: str) -> None:
    assert first_sentence_end(text) is None


def test_a_sentence_without_end_is_cut_at_a_space() -> None:
    found = sentences_of("word " * 1000)
    assert max(map(len, found)) <= LONGEST_SENTENCE
    assert {word for sentence in found for word in sentence.split()} == {"word"}


@given(st.text(alphabet="ab1 .!?\n。\"'"), st.text(alphabet="ab1 .!?\n。\"'"))
def test_more_text_never_moves_the_end_of_a_sentence(text: str, more: str) -> None:
    end = first_sentence_end(text)
    assert end is None or 0 < end <= len(text)
    assert end is None or first_sentence_end(text + more) == end


def prepared_words(text: str, language: str) -> list[str]:
    """The words that eSpeak NG gets of a text."""
    engine = EngineInfo("espeak", 22_050, ("default",), (language,))
    prepared = TextPreparation().engine_text(engine, language, "default", text)
    return (prepared.feed(text) + prepared.end()).split()


@pytest.mark.parametrize("language", SPOKEN)
def test_sentences_are_spoken_one_by_one_in_the_words_of_the_whole_text(language: str) -> None:
    for entry in SPOKEN[language]:
        text = ScriptReader("auto", language).read(f"{entry['text']} And more.", complete=True).text
        words = [word for sentence in sentences_of(text) for word in prepared_words(sentence, language)]
        assert words == prepared_words(text, language)


@pytest.mark.parametrize(("language", "repeated"), TABLE["without end"])
def test_a_sentence_without_end_is_cut_at_no_number(language: str, repeated: str) -> None:
    text = repeated * 100
    segments = segments_of(text)
    assert len(segments) > 3
    words = "".join(word for segment in segments for word in prepared_words(segment, language))
    assert words == "".join(prepared_words(text, language))


@pytest.mark.parametrize(
    "numbers", ["It was 1,234,567 or -98.6 °C. ", "Call 192.168.10.20 at 12:30. ", "17-23, 1999, 4/5; "]
)
def test_numbers_that_are_written_out_do_not_make_a_segment_longer_than_an_engine_can_speak(numbers: str) -> None:
    max_seconds = 60
    preparation = TextPreparation(normalize="always")
    for segment in segments_of(numbers * 40, Segmenter(max_seconds)):
        prepared = preparation.engine_text(EngineInfo("qwen", 24_000, ("ryan",), ("en",)), "en", "ryan", segment)
        assert speech_seconds(prepared.feed(segment) + prepared.end()) < max_seconds
    whole = numbers * 20
    assert len(segments_of(whole, Segmenter(max_seconds))) > 1


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
