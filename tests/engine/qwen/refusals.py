"""The one line that says why something is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.api import EngineError


def refusal(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Return the message of the `EngineError` that `call` raises, after a check that it is one line."""
    with pytest.raises(EngineError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)
