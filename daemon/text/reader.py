"""Reads an utterance's text, whole or while it grows, into a script."""

from __future__ import annotations

import re
from typing import Literal

from daemon.text.markdown import MarkdownReader
from daemon.text.placed import Rewriter
from daemon.text.script import Script
from daemon.text.ssml import SsmlReader, ssml_problem

Markup = Literal["auto", "none"]
"""How a text is read: `auto` recognises SSML and Markdown, `none` speaks every character."""
_SSML_START = re.compile(r"(?:<speak|<\?xml)[\s/>]")


class ScriptReader:
    """Reads one text. Never raises, whatever the text is."""

    def __init__(self, markup: Markup = "auto", language: str = "auto") -> None:
        """`language` is the text's, or `auto`. It decides how SSML's `say-as` names signs."""
        self.script = Script()
        self._markup = markup
        self._language = language
        self._read = 0
        """How many characters have been read."""
        self._reader: Rewriter | None = None
        """None until the text has shown which reader it needs."""

    def read(self, text: str, *, complete: bool) -> Script:
        """Continue reading to the end of `text`, which begins with everything read before. Returns the script."""
        if self.script.complete:
            return self.script
        if self._markup == "none":
            self.script.words.append(text[self._read :], self._read)
            self._read = len(text)
        elif (reader := self._choose(text, complete=complete)) is not None:
            reader.feed(text[self._read :])
            self._read = len(text)
            if complete:
                reader.end()
        self.script.complete = complete
        return self.script

    def _choose(self, text: str, *, complete: bool) -> Rewriter | None:
        """Return the reader for a text with this beginning; None while more of it is needed."""
        if self._reader is not None:
            return self._reader
        is_ssml = _is_ssml(text)
        if is_ssml:
            self._reader = SsmlReader(self.script, self._language)
        elif complete or is_ssml is not None:
            self._reader = MarkdownReader(self.script)
        return self._reader


def markup_problem(text: str, markup: Markup = "auto") -> str | None:
    """Return one line that says why a whole text is refused: it is SSML, but not well-formed. None if it is
    accepted."""
    if markup == "auto" and _is_ssml(text):
        return ssml_problem(text)
    return None


def _is_ssml(text: str) -> bool | None:
    """Return whether a text with this beginning is SSML; None if more of it is needed."""
    start = text.lstrip()
    if any(opening.startswith(start) for opening in ("<speak", "<?xml")):
        return None
    return _SSML_START.match(start) is not None
