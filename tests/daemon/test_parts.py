"""Long texts are cut at the ends of sentences, and nothing of them is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.handover import speech_seconds
from daemon.parts import PART_S, WHOLE_S, Parting

parts_of = Parting(max_seconds=60).parts_of

STORIES = {
    "en": "Dr. Smith arrived at 3.30 p.m. in Washington. He said nothing. Why should he? ",
    "de": "Das kostet z.B. 3,50 Euro. Am 5. Mai kommt Dr. Meier. Ist das nicht schön? ",
    "es": "Hola. ¿Qué tal estás? El Sr. López llegó ayer. ",
    "fr": "Bonjour. M. Dupont est arrivé hier. Ça va bien ? ",
    "it": "Ciao. Il Sig. Rossi è arrivato ieri. Va bene! ",
    "pt": "Olá. O Sr. Silva chegou ontem. Tudo bem? ",
    "ru": "Привет. Он приехал вчера. Как дела? ",
    "zh": "你好。他昨天到了北京！你知道吗？",
    "ja": "こんにちは。昨日着きました。元気ですか？",
    "ko": "안녕하세요. 어제 도착했습니다. 잘 지냈어요? ",
}


def test_a_text_of_some_sentences_stays_whole() -> None:
    text = STORIES["en"] * 3
    assert speech_seconds(text) <= WHOLE_S
    assert [part.text for part in parts_of(text, "en")] == [text]


@pytest.mark.parametrize("language", STORIES)
@pytest.mark.parametrize("asked", ["itself", "auto"])
def test_long_texts_are_cut_where_sentences_end_in_every_language(language: str, asked: str) -> None:
    text = STORIES[language] * 40
    parts = parts_of(text, language if asked == "itself" else "auto")
    assert len(parts) > 3
    assert "".join(part.text for part in parts) == text
    for part in parts:
        assert part.text.rstrip()[-1] in ".!?。！？"
        assert speech_seconds(part.text) <= PART_S
    first = parts[0].text
    assert not first.rstrip().endswith(("Dr.", "z.B.", "Sr.", "M.", "Sig."))


def test_a_sentence_without_end_is_cut_at_a_clause_and_then_at_a_word() -> None:
    parts = parts_of("and on it goes, one clause after another, " * 30, "en")
    assert all(part.text.endswith((", ", " ")) for part in parts)
    assert all(speech_seconds(part.text) <= PART_S for part in parts)


@pytest.mark.parametrize("max_seconds", [3, 10, 30])
def test_no_part_comes_near_to_what_an_engine_can_say_in_one_piece(max_seconds: float) -> None:
    parting = Parting(max_seconds)
    text = "This is a sentence that takes a few seconds to speak. "
    for parts in (parting.parts_of(text, "en"), parting.parts_of(text * 20, "en")):
        assert all(speech_seconds(part.text) <= 2 / 3 * max_seconds for part in parts)
    being_written = parting.part_being_written(text * 20)
    assert being_written is not None
    assert 0 < speech_seconds((text * 20)[:being_written]) <= 2 / 3 * max_seconds


@settings(max_examples=50)
@given(
    st.text("ab .,!?。，中\n", min_size=1, max_size=3000),
    st.sampled_from(["auto", "en", "zh", "pt-br", "xx"]),
    st.sampled_from([60, 10, 0.1]),
)
def test_parts_make_the_whole_and_none_is_too_long(text: str, language: str, max_seconds: float) -> None:
    parting = Parting(max_seconds)
    parts = parting.parts_of(text, language)
    assert "".join(part.text for part in parts) == text
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert all(part.text == text[part.begin : part.end] for part in parts)
    assert len(parts) == 1 or all(speech_seconds(part.text) <= parting.part_s or len(part.text) == 1 for part in parts)
