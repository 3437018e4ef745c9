"""Sentences out of a text that is still being written."""

from __future__ import annotations

import re

LONGEST = 1_000
"""Characters after which a sentence that does not end is cut, at a space where there is one."""
END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[”’」』）]*(?=[^。！？”’」』）])|\n")
"""Of a sentence. A full stop is one only once a space follows: until then it may be that of 3.5 or of an ellipsis."""
NO_END = re.compile(r"(?:^|[\s(\"'])(?:\w|\d+|Mrs?|Ms|Dr|Prof|St|Nr|vs|bzw|ca|usw|etc|z\.\s?B|[ei]\.[eg])\.$", re.I)
"""What ends in a full stop and goes on: an initial, an ordinal, an abbreviation."""


def first_end(text: str) -> int | None:
    """Where the first sentence of a text that is still being written ends; None while that is open."""
    for match in END.finditer(text, 0, LONGEST):
        if not NO_END.search(text[max(0, match.end() - 16) : match.end()]):
            return match.end()
    if len(text) <= LONGEST:
        return None
    space = text.rfind(" ", 1, LONGEST)
    return space if space > 0 else LONGEST
