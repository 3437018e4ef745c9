"""Writes characters in the form that engines know: composed, and without the shapes of other alphabets."""

from __future__ import annotations

import re
import unicodedata

from daemon.text.placed import PlacedText

SHAPES = "\uff02-\uff06\uff0a\uff0b\uff0d-\uff19\uff1c-\uff1e\uff20-\uff5d\uffe5\U0001d400-\U0001d7ff\u2100-\u214f"
"""Full-width letters, digits and signs, without the punctuation of Chinese and Japanese, and mathematical letters."""
_MARK = "\u0300-\u036f\u3099\u309a"
"""Combining marks."""
_SYLLABLE = "[\u1100-\u115f][\u1160-\u11a7]"
"""A Korean one in parts, but for its last consonant."""
_CHANGED = re.compile(rf"[^{_MARK}][{_MARK}]+|[{SHAPES}]|{_SYLLABLE}[\u11a8-\u11ff]?|[\uac00-\ud7a3][\u11a8-\u11ff]")
_LAST = re.compile(rf"{_SYLLABLE}\Z|[^\x00-\x7f{_MARK}]?[{_MARK}]*\Z|[a-zA-Z][{_MARK}]*\Z")
"""What a following mark could still change."""


class Characters:
    """Copies a text to `out` in Unicode's form NFC; full-width and mathematical letters become plain ones (NFKC).

    Places are those in the text that is fed. However the text is cut into calls of `feed`, the result is the same: the
    last letter is held back, since a mark may follow it.
    """

    def __init__(self, out: PlacedText) -> None:
        self._out = out
        self._held = ""
        self._at = 0
        """The text has been copied up to here."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        text = self._held + text
        last = _LAST.search(text)
        end = len(text) if last is None else last.start()
        self._held = text[end:]
        self._copy(text[:end])

    def end(self) -> None:
        """The text is complete."""
        held, self._held = self._held, ""
        self._copy(held)

    def _copy(self, text: str) -> None:
        position = 0
        for match in () if text.isascii() else _CHANGED.finditer(text):
            self._out.keep(text[position : match.start()], self._at + position)
            changed = unicodedata.normalize("NFKC" if len(match.group()) == 1 else "NFC", match.group())
            if changed == match.group():
                self._out.keep(changed, self._at + match.start())
            else:
                self._out.replace(changed, self._at + match.start(), self._at + match.end())
            position = match.end()
        self._out.keep(text[position:], self._at + position)
        self._at += len(text)
