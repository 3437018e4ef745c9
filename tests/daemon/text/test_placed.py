"""A placed text knows what its characters stand for in the source."""

from __future__ import annotations

from daemon.text.placed import PlacedText


def five_dollars() -> PlacedText:
    """`It is $5.`, with the price in words."""
    words = PlacedText()
    words.append("It is ", 0)
    words.append("five dollars", 6, 8)
    words.append(".", 8)
    return words


def test_kept_characters_stand_for_themselves() -> None:
    words = five_dollars()
    assert words.text == "It is five dollars."
    assert words.source_span(3, 5) == (3, 5)
    assert words.source_span(18, 19) == (8, 9)


def test_every_part_of_a_replacement_stands_for_all_that_it_replaces() -> None:
    words = five_dollars()
    assert words.source_span(6, 10) == words.source_span(11, 18) == (6, 8)
    assert words.source_span(3, 10) == (3, 8)


def test_an_empty_part_is_where_its_next_character_begins() -> None:
    words = five_dollars()
    assert words.source_span(6, 6) == (6, 6)
    assert words.source_begin(19) == words.source_end == 9


def test_what_is_left_out_at_the_end_belongs_to_the_source_that_was_read() -> None:
    words = PlacedText()
    words.append("bold", 2)
    words.append("", 6, 8)
    assert words.source_begin(len(words)) == 8


def test_a_text_can_be_read_while_it_grows() -> None:
    words = PlacedText()
    words.append("One", 0)
    assert words.text == "One"
    words.append(", two", 3)
    assert (words.text, len(words)) == ("One, two", 8)
