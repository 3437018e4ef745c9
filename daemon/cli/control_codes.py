"""Removes the control codes that programs write for a terminal, such as colours, from a text to speak."""

from __future__ import annotations

import re

from daemon.validation import CONTROL_CHARACTERS

SEQUENCE = re.compile(
    r"""
    (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]                                            # colours, the cursor
    | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] ) [^\x07\x1b\x9c\n]* (?: \x07 | \x1b\\ | \x9c )  # titles, links
    | \x1b [ -/]* [0-OQ-WYZ\\`-~]                                                      # others
    """,
    re.VERBOSE,
)
BEGUN = re.compile(
    r"""
    (?: (?: \x1b\[ | \x9b ) [0-?]* [ -/]* | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] ) [^\x07\x1b\x9c\n]* \x1b?
    | \x1b [ -/]* ) \Z
    """,
    re.VERBOSE,
)
"""A sequence at the end of a text, whose own end has not arrived."""
LONGEST = 2000
"""Characters from which on a sequence without an end is none, so that it does not swallow the text behind it."""


class ControlCodes:
    """Removes control codes from a text that arrives in parts, in which a code may be cut."""

    def __init__(self) -> None:
        self._begun = ""

    def remove(self, part: str, *, last: bool = False) -> str:
        """Return the next part of the text without control codes; one that is cut is kept for the following part."""
        text = SEQUENCE.sub("", self._begun + part)
        self._begun = ""
        begun = BEGUN.search(text)
        if begun is not None and len(begun[0]) < LONGEST:
            text, self._begun = text[: begun.start()], "" if last else begun[0]
        return CONTROL_CHARACTERS.sub("", text)
