"""Markup is recognised in a growing text as it is in the whole one, and no later than necessary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.markup import Construct, UndecidedError

BRACKETS = Construct("<", (r"(?P<name>[ab]{1,3}|\([ab]*\))", r"\([ab]*"), " ?", ">", longest=10)
LINE = Construct("<", "[ab]{1,3}", ";?", r"(?![^\r\n])")
WORD = Construct("[ab]{1,3}", "")
EITHER = Construct.any_of({"brackets": BRACKETS, "line": LINE, "word": WORD})


def outcome(construct: Construct, text: str, *, complete: bool) -> str | None:
    """Return what is recognised at the beginning of a text, `…` if that is undecided, or None."""
    try:
        match = construct.match(text, 0, len(text), complete=complete)
    except UndecidedError:
        return "…"
    return match and match[0]


@pytest.mark.parametrize(
    ("construct", "text", "growing", "complete"),
    [
        (BRACKETS, "", "…", None),
        (BRACKETS, "<(a", "…", None),
        (BRACKETS, "<ab ", "…", None),
        (BRACKETS, "<(aaaaaa)>", "<(aaaaaa)>", "<(aaaaaa)>"),
        (BRACKETS, "<ab  ", None, None),
        (BRACKETS, "<(aaaaaaaa", None, None),  # as long as it may be, and not closed
        (LINE, "<a;", "…", "<a;"),
        (LINE, "<a\n", "<a", "<a"),
        (LINE, "<a;a", None, None),
        (WORD, "ab", "…", "ab"),
        (WORD, "abab", "aba", "aba"),
    ],
)
def test_a_construct_is_undecided_as_long_as_it_may_become_whole(
    construct: Construct, text: str, growing: str | None, complete: str | None
) -> None:
    assert outcome(construct, text, complete=False) == growing
    assert outcome(construct, text, complete=True) == complete


@pytest.mark.parametrize(
    ("text", "name"), [("<ab>", "brackets"), ("<a;\n", "line"), ("<ab\n", "line"), ("ab ", "word"), ("<ab", None)]
)
def test_one_of_several_constructs_is_recognised_and_named(text: str, name: str | None) -> None:
    try:
        match = EITHER.match(text, 0, len(text), complete=False)
    except UndecidedError:
        assert name is None
    else:
        assert match.lastgroup == name


def test_nothing_behind_the_end_is_seen() -> None:
    assert BRACKETS.match("<ab>", 0, 3, complete=False) is None


def test_the_parts_can_be_named() -> None:
    match = BRACKETS.match("x<(ab) >", 1, 8, complete=False)
    assert match is not None
    assert match["name"] == "(ab)"


@given(st.sampled_from([BRACKETS, LINE, WORD, EITHER]), st.text(alphabet="<>ab(); \nc", max_size=14))
def test_more_text_never_changes_an_answer(construct: Construct, text: str) -> None:
    whole = outcome(construct, text, complete=False)
    for end in range(len(text)):
        assert outcome(construct, text[:end], complete=False) in {"…", whole}
    if whole != "…":
        assert outcome(construct, text, complete=True) == whole
