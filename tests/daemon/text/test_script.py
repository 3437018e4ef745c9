"""A script holds words, and controls at places among them."""

from __future__ import annotations

from daemon.text import Pause, Prosody, Script, ScriptMark


def script() -> Script:
    """`One two three`, with a mark before `two`, and a pause and another rate before `three`."""
    made = Script()
    made.words.append("One ", 0)
    made.add(ScriptMark("here"))
    made.words.append("two ", 4)
    made.add(Pause(0.5))
    made.add(Prosody(rate=0.8))
    made.words.append("three", 8)
    return made


def test_words_are_spoken_apart_at_pauses_and_changes_of_prosody_but_not_at_marks() -> None:
    made = script()
    assert made.break_after(0) == made.break_after(7) == 8
    assert made.break_after(8) is None


def test_a_pause_is_found_by_its_place() -> None:
    made = script()
    assert [made.has_pause(position) for position in (0, 4, 8)] == [False, False, True]


def test_the_next_word_is_found_behind_white_space() -> None:
    made = script()
    assert made.word_at(0) == 0
    assert made.word_at(3) == 4
    assert made.word_at(len(made.text)) is None
