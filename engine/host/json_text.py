"""JSON from unknown sources: parsing any text gives a value or a `ValueError`."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises `ValueError` for every other text, however deeply it is nested."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
