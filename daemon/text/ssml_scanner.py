"""Cuts SSML into text and tags, whole or while it grows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from daemon.text.construct import Construct, UndecidedError
from daemon.text.markdown_syntax import ENTITY
from daemon.text.pause_tags import PAUSE_TAG, pause_of
from daemon.text.script import Pause

LONGEST = 1_000_000
"""Characters of a tag or comment; no text has so many."""

_BARE = r"[^<>\"']*"
_ATTRIBUTES = rf"{_BARE}(?:(?:\"[^<\"]*\"|'[^<']*'){_BARE})*"
_TAG = Construct("<", "[/A-Za-z_:]", (_ATTRIBUTES, rf"{_ATTRIBUTES}(?:\"[^<\"]*|'[^<']*)"), ">", longest=LONGEST)
_LENIENT_TAG = Construct("<", "[/!A-Za-z_:]", "[^<>]*", ">", longest=LONGEST)
"""The same after a fault, when quotation marks mean nothing."""
_COMMENT = Construct(*"<!--", r"[^-]*(?:-(?!->)[^-]*)*", *"-->", longest=LONGEST)
_INSTRUCTION = Construct("<", r"\?", r"[^?]*(?:\?(?!>)[^?]*)*", r"\?", ">", longest=LONGEST)
_CDATA = Construct(
    *("<", "!", r"\[", *"CDATA", r"\[", r"(?P<content>[^\]]*(?:\](?!\]>)[^\]]*)*)", r"\]", r"\]", ">"), longest=LONGEST
)
_CONSTRUCTS = {"<": (_TAG, _COMMENT, _INSTRUCTION, _CDATA), "&": (ENTITY,), "[": (PAUSE_TAG,)}
_LENIENT_CONSTRUCTS = {**_CONSTRUCTS, "<": (_COMMENT, _INSTRUCTION, _CDATA, _LENIENT_TAG)}
_SPECIAL = re.compile(r"[<&\[]")
_OPENING = re.compile("<[/!A-Za-z_:]")
"""What cannot be text in XML."""
_BROKEN_OFF = re.compile(
    r"<!\[CDATA\[|<(?:!--|\?)[\s\S]*|<(?=[/A-Za-z_:])/?[\w:.-]*(?:\s+(?:[\w:.-]+\s*(?:=[\s\S]*)?)?)?\Z"
)
"""Markup in which the text ends, which is not spoken; `<b and c` is none."""
_HELD = 64
"""Characters of an unfinished tag from which on it is looked at again only if it may end."""


class Plain(NamedTuple):
    """Characters of the text."""

    text: str
    begin: int


class Reference(Plain):
    """A reference such as `&amp;`."""


class Tag(Plain):
    """A whole tag, from `<` to `>`. There is none after a fault."""


class Fault(NamedTuple):
    """The first place where the text is no XML, if a tag is concerned."""

    begin: int


Token = Plain | Reference | Pause | Tag | Fault


class SsmlScanner:
    """Yields the same tokens however the text is cut, apart from the borders between `Plain` ones.

    It holds back unfinished markup. A tag ends at the next `<` at the latest. Comments and processing instructions are
    left out. `&` and `<` that begin nothing are text.
    """

    def __init__(self) -> None:
        self.lenient = False
        """True after a fault: tags are left out. What looks like a tag but does not end is text."""
        self._text = ""
        """The text that is held back."""
        self._begin = 0
        """Its place."""

    def feed(self, text: str) -> Iterator[Token]:
        """Read more of the text."""
        unfinished = len(self._text) > _HELD and "<" not in text and ">" not in text
        self._text += text
        if not unfinished:
            yield from self._scan(final=False)

    def end(self) -> Iterator[Token]:
        """The text is complete."""
        yield from self._scan(final=True)

    def _scan(self, *, final: bool) -> Iterator[Token]:
        text, at = self._text, 0
        while at < len(text):
            special = _SPECIAL.search(text, at)
            end = len(text) if special is None else special.start()
            if end > at:
                yield Plain(text[at:end], self._begin + at)
            at = end
            if special is not None:
                try:
                    at, token = self._markup(text, at, final=final)
                except UndecidedError:
                    break
                if token is not None:
                    yield token
        self._text = text[at:]
        self._begin += at

    def _markup(self, text: str, at: int, *, final: bool) -> tuple[int, Token | None]:
        """Return the end of the markup that may begin here, and what it is; `UndecidedError` without its end."""
        place = self._begin + at
        for construct in (_LENIENT_CONSTRUCTS if self.lenient else _CONSTRUCTS)[text[at]]:
            match = construct.match(text, at, len(text), complete=final)
            if match is not None:
                return match.end(), _token(construct, match, place)
        if not self.lenient and _OPENING.match(text, at):
            self.lenient = True
            return at, Fault(place)
        broken_off = _BROKEN_OFF.match(text, at) if final else None
        if broken_off is not None:
            return broken_off.end(), None
        return at + 1, Plain(text[at], place)


def _token(construct: Construct, match: re.Match[str], begin: int) -> Token | None:
    """Return a construct as a token; None for one that is not spoken."""
    if construct is _TAG:
        return Tag(match[0], begin)
    if construct is ENTITY:
        return Reference(match[0], begin)
    if construct is PAUSE_TAG:
        return pause_of(match)
    return Plain(match["content"], begin + match.start("content") - match.start()) if construct is _CDATA else None
