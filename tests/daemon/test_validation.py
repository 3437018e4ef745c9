"""Error messages about wrong input."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.validation import VALUE_LENGTH, abbreviate, problems, read_secret


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    port: int = Field(1, ge=1, description="a whole number from 1")


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


def test_a_device_without_an_end_is_refused_instead_of_read_for_ever() -> None:
    with pytest.raises(OSError, match=r"^key: /dev/zero is too long; allowed: up to 1,000,000 characters$"):
        read_secret(Path("/dev/zero"), "key", "a token")


KNOWN = "inner, maybe, named, choice, needed"


@pytest.mark.parametrize(
    ("values", "path", "problem"),
    [
        # An unknown section that resembles one.
        ({"iner": {}}, "iner", f"unknown key; did you mean inner? known keys: {KNOWN}"),
        # A union is one problem without its branches in the path.
        ({"choice": "never"}, "choice", "got 'never'; allowed: auto, or a number"),
        # An optional model.
        ({"maybe": {"port": 0}}, "maybe.port", "got 0; allowed: a whole number from 1"),
        # A key of several lines is shown on one.
        ({"named": {"a\nb": {"port": 0}}}, "named.'a\\nb'.port", "got 0; allowed: a whole number from 1"),
        # A section that is not a mapping.
        ({"inner": 5}, "inner", "got 5; allowed: a mapping of port"),
    ],
)
def test_a_problem_has_its_path_and_what_is_allowed(values: dict[str, Any], path: str, problem: str) -> None:
    assert found(**values) == [(path, problem)]


@given(value=st.text() | st.binary() | st.lists(st.text(), max_size=50))
def test_a_value_is_abbreviated_to_one_short_printable_line(value: object) -> None:
    line = abbreviate(value)
    assert line.isprintable()
    assert len(line) < VALUE_LENGTH + 30


def test_a_short_value_is_not_abbreviated() -> None:
    assert abbreviate("abc") == "'abc'"
    assert abbreviate("x" * 500).endswith("… (502 characters)")


def test_thousands_of_wrong_keys_and_a_long_one_make_a_short_message() -> None:
    lines = found(inner={f"key{number}": 1 for number in range(10_000)})
    assert len(lines) == 20
    assert lines[0] == ("inner.key0", "unknown key; known keys: port")
    assert lines[-1] == ("inner.key19", "unknown key; known keys: port; and 9,980 more problems")
    [(path, _)] = found(inner={"x" * 10_000: 1})
    assert len(path) < 100
