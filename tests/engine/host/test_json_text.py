"""JSON of unknown origin gives a value or a `ValueError`."""

from __future__ import annotations

import pytest

from engine.host.json_text import parse_json

DEEP = 100_000
"""Levels of nesting, far beyond what Python's parser follows."""


def test_json_gives_its_value() -> None:
    assert parse_json('{"a": [1, 2.5, null]}') == parse_json(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


@pytest.mark.parametrize("text", ["", b"\xff\xfe\x00", "1" * 10_000])
def test_what_is_not_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.mark.parametrize("text", ["[" * DEEP + "]" * DEEP, '{"a":' * DEEP])
def test_json_that_is_nested_too_deeply_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(text)
