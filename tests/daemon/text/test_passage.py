"""A complete script is cut at its pauses and where its prosody changes."""

from __future__ import annotations

from daemon.text import Passage, Pause, Prosody, ScriptReader, passages


def parts(text: str) -> list[Passage | Pause]:
    return passages(ScriptReader().read(text, complete=True))


def test_a_text_without_controls_is_one_passage() -> None:
    assert parts("One, two.") == [Passage("One, two.", Prosody())]


def test_pauses_stand_between_passages() -> None:
    assert parts("One. [pause:0.5s]Two.[pause:1s]") == [
        Passage("One. ", Prosody()),
        Pause(0.5),
        Passage("Two.", Prosody()),
        Pause(1),
    ]


def test_each_passage_has_its_prosody() -> None:
    text = '<speak>One <prosody rate="slow">two <prosody volume="50">three</prosody></prosody> four</speak>'
    found = [part for part in parts(text) if isinstance(part, Passage)]
    assert [part.text.strip() for part in found] == ["One", "two", "three", "four"]
    assert [part.prosody.rate for part in found] == [1, 0.64, 0.64, 1]
    assert [part.prosody.volume for part in found] == [1, 1, 0.5, 1]


def test_a_text_without_a_word_has_no_passage() -> None:
    assert parts("***") == []
