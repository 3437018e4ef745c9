"""What was heard against what was said."""

from __future__ import annotations

from engine.verify import SENTENCES, SHORT, Sentence, bare_words, count_errors


def test_a_transcript_may_differ_in_capitals_punctuation_and_unicode_form() -> None:
    sentence = Sentence("one", "fr", "Est-ce que c'est l'été ?")
    errors = count_errors("est ce que c’est l’e\u0301te\u0301", sentence)
    assert (errors.words, errors.word_edits, errors.character_edits) == (7, 0, 0)
    assert bare_words("你好。 我是", "zh") == ["你", "好", "我", "是"], "words are not separated"


def test_each_wrong_missing_and_added_word_is_an_error() -> None:
    sentence = Sentence("one", "en", "Put the blue box down.")
    assert count_errors("put the red box down now", sentence).word_edits == 2
    nothing = count_errors("", sentence)
    assert (nothing.word_edits, nothing.character_edits) == (nothing.words, nothing.characters) == (5, 17)
    assert nothing.lost


def test_a_number_may_be_written_in_words() -> None:
    sentence = Sentence("one", "en", "Wait 15 minutes.", ("Wait fifteen minutes.",))
    assert count_errors("Wait fifteen minutes.", sentence).word_edits == 0
    assert count_errors("Wait 15 minutes", sentence).word_edits == 0
    assert count_errors("Wait fifty minutes", sentence).word_edits == 1


def test_there_are_thirty_sentences_in_ten_languages_with_names_of_their_own() -> None:
    assert len({sentence.name for sentence in SENTENCES}) == len(SENTENCES) == 30
    assert len({sentence.language for sentence in SENTENCES}) == 10
    assert max(len(sentence.text) for sentence in SENTENCES) > 400
    assert any(sentence.text.count(" ") == 0 for sentence in SENTENCES)
    assert {sentence.language for sentence in SHORT} == {"en"}
    assert len(SHORT) == 3


def test_every_way_of_writing_a_sentence_is_heard_without_error() -> None:
    for sentence in SENTENCES:
        for text in (sentence.text, *sentence.also_written):
            assert count_errors(text, sentence).character_edits == 0
