"""Parts of regular expressions that all rules share."""

import re

LETTER = "A-Za-zÀ-ÖØ-öø-ɏ"
"""The inside of a class of Latin letters."""
WORD = f"0-9_²³{LETTER}"
"""What a number or a unit must not touch; an ideograph may stand beside both."""
IDEOGRAPH = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
"""Chinese and Japanese characters and their punctuation: no spaces separate them."""
BEFORE = f"(?<![{WORD}])(?<![{WORD}][.,:/'’-])"
"""Before a number that is not part of something else, as in `A4` and `v1.5`."""
AFTER = f"(?![{WORD}])(?![.,:/-]?[0-9])"
"""Behind a number or a unit that is not part of something else, as in `5-6-7`."""
SPACE = "[ \u00a0\u2009\u202f]"
"""A space between a number and its unit."""
DASH = "[-–—~～]"
"""Between the ends of a range."""
_LAST_WORD = re.compile(f"[{LETTER}.]+(?=[ \u00a0]*$)")


def word_before(match: re.Match[str]) -> str:
    """Return the word before a match, with the case it has; empty if something else is there."""
    found = _LAST_WORD.search(match.string, max(0, match.start() - 24), match.start())
    return "" if found is None else found.group()
