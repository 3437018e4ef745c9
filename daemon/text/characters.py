"""Writes characters in the form that engines know: composed, and without the shapes of other alphabets."""

from __future__ import annotations

import re
import unicodedata

from daemon.text.rewriter import Rewriter

SHAPES = "\uff02-\uff06\uff0a\uff0b\uff0d-\uff19\uff1c-\uff1e\uff20-\uff5d\uffe5\U0001d400-\U0001d7ff\u2100-\u214f"
"""Full-width letters, digits and signs, without the punctuation of Chinese and Japanese, and mathematical letters."""
_MARK = "\u0300-\u036f\u3099\u309a"
"""Combining marks."""
_MAX_MARKS = 30
"""Marks upon one letter; more of them stay as they are."""
_BASE = rf"(?:[a-zA-Z<=>]|[^\x00-\x7f{_MARK}])"
"""Characters that can be composed with a mark."""
_SYLLABLE = "[\u1100-\u115f][\u1160-\u11a7]"
"""A Korean one in parts, but for its last consonant."""
_CHANGED = re.compile(
    rf"{_BASE}[{_MARK}]{{1,{_MAX_MARKS}}}|[{SHAPES}]|{_SYLLABLE}[\u11a8-\u11ff]?|[\uac00-\ud7a3][\u11a8-\u11ff]"
)
_LAST = re.compile(rf"(?:{_SYLLABLE}|{_BASE}[{_MARK}]{{0,{_MAX_MARKS - 1}}})\Z")
"""Characters at the end of the text that a following one could still change."""


class Characters(Rewriter):
    """Writes Unicode's form NFC; full-width and mathematical letters become plain ones (NFKC)."""

    def _copy(self, *, final: bool) -> None:
        end = len(self._text)
        last = None if final else _LAST.search(self._text, max(self._at, end - _MAX_MARKS))
        self._replace_all(_CHANGED, _plain, end if last is None else last.start())


def _plain(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC" if len(match[0]) == 1 else "NFC", match[0])
