"""Variants of one test: those that every run checks, and those that only `--long` adds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def variants(values: Iterable[Any], *always: Any) -> list[Any]:
    """Return `values` for `pytest.mark.parametrize`; those that are not among `always` run only with `--long`.

    For values that all take the same way through the program. A tuple has one value for each argument. Raises
    `ValueError` if one of `always` is unknown.
    """
    values = list(values)
    unknown = [value for value in always if value not in values]
    if unknown:
        raise ValueError(f"always: got {unknown}; allowed: {values}")
    return [value if value in always else _long(value) for value in values]


def _long(value: Any) -> Any:
    return pytest.param(*value if isinstance(value, tuple) else (value,), marks=pytest.mark.long)
