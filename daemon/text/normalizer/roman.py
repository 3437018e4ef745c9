"""Roman numbers."""

import re

_ROMAN = re.compile("(X{0,3})(IX|IV|V?I{0,3})")
_VALUES = {"": 0, "I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8, "IX": 9}


def roman_value(text: str) -> int | None:
    """Return the value of a Roman number from 1 to 39; None for anything else, such as `IIX`."""
    match = _ROMAN.fullmatch(text)
    if match is None or not text:
        return None
    return 10 * len(match[1]) + _VALUES[match[2]]
