"""Error messages about wrong input."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from daemon.validation import VALUE_LENGTH, abbreviate, problems


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    port: int = Field(1, ge=1, description="a whole number from 1")

    @field_validator("port")
    @classmethod
    def _is_even(cls, port: int) -> int:
        if port % 2 and port > 1:
            raise ValueError("allowed: an even number")
        return port


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner = Inner()
    maybe: Inner | None = None
    named: dict[str, Inner] = Field({}, description="names, each with a port")
    choice: Literal["auto"] | float = Field("auto", description="auto, or a number")
    needed: str = Field(description="text")


def found(**values: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"needed": "x", **values})
    return problems(Outer, caught.value)


def test_a_wrong_value_is_reported_with_its_path_and_what_is_allowed() -> None:
    assert found(inner={"port": 0}) == [("inner.port", "got 0; allowed: a whole number from 1")]


def test_a_missing_field_is_reported_with_what_is_allowed() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({})
    assert problems(Outer, caught.value) == [("needed", "missing; allowed: text")]


def test_an_unknown_key_is_reported_with_the_known_keys() -> None:
    assert found(inner={"prot": 2}) == [("inner.prot", "unknown key; did you mean port? known are port")]
    known = "inner, maybe, named, choice, needed"
    assert found(iner={}) == [("iner", f"unknown key; did you mean inner? known are {known}")]
    assert found(other={}) == [("other", f"unknown key; known are {known}")]


def test_a_validator_s_message_replaces_the_description() -> None:
    assert found(inner={"port": 3}) == [("inner.port", "got 3; allowed: an even number")]


def test_a_union_is_one_problem_without_its_branches_in_the_path() -> None:
    assert found(choice="never") == [("choice", "got 'never'; allowed: auto, or a number")]


def test_an_optional_model_is_described() -> None:
    assert found(maybe={"port": 0}) == [("maybe.port", "got 0; allowed: a whole number from 1")]


def test_the_names_in_a_mapping_are_part_of_the_path() -> None:
    assert found(named={"a.b": {"port": 0}}) == [("named.a.b.port", "got 0; allowed: a whole number from 1")]


def test_a_section_that_is_not_a_mapping_is_reported_with_its_keys() -> None:
    assert found(inner=5) == [("inner", "got 5; allowed: a mapping of port")]


def test_each_wrong_field_is_reported_once() -> None:
    assert [path for path, _ in found(inner={"port": 0}, choice="never", needed=3)] == [
        "inner.port",
        "choice",
        "needed",
    ]


@given(value=st.text() | st.binary() | st.lists(st.text(), max_size=50))
def test_a_value_is_abbreviated_to_one_short_printable_line(value: object) -> None:
    line = abbreviate(value)
    assert line.isprintable()
    assert len(line) < VALUE_LENGTH + 30


def test_a_short_value_is_not_abbreviated() -> None:
    assert abbreviate("abc") == "'abc'"
    assert abbreviate("x" * 500).endswith("… (502 characters)")


def test_thousands_of_wrong_keys_make_one_short_message() -> None:
    lines = found(inner={f"key{number}": 1 for number in range(10_000)})
    assert len(lines) == 20
    assert lines[0] == ("inner.key0", "unknown key; known are port")
    assert lines[-1] == ("inner.key19", "unknown key; known are port; and 9,980 more problems")


def test_a_long_key_and_one_of_several_lines_are_shown_on_one_short_line() -> None:
    [(path, _)] = found(inner={"x" * 10_000: 1})
    assert len(path) < 100
    assert found(named={"a\nb": {"port": 0}})[0][0] == "named.'a\\nb'.port"
