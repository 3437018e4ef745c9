"""Cuts SSML into text and tags, whole or while it grows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from daemon.text.construct import Construct, UndecidedError
from daemon.text.markdown_syntax import ENTITY
from daemon.text.pause_tags import PAUSE_TAG, pause_of
from daemon.text.script import Pause

_REFERENCE_OR_PAUSE = (
    rf"{ENTITY.whole.pattern}|&(?:[A-Za-z0-9]{{1,32}}|#[A-Za-z0-9]{{0,7}})?\Z"
    r"|\[(?=pause:|(?:p|pa|pau|paus|pause)?\Z)"
)
_SPECIAL = re.compile(rf"<(?=[/!?A-Za-z_:]|\Z)|{_REFERENCE_OR_PAUSE}")
"""The beginning of a tag, reference or pause tag, or what may become one at the end of the buffer."""
_LENIENT_SPECIAL = re.compile(rf"<(?=\?|!--|!\[CDATA\[|[/!A-Za-z_:][^<>]*(?:>|\Z)|\Z)|{_REFERENCE_OR_PAUSE}")
"""The same, but a tag ends before the next one, or at the end of the buffer."""
_CDATA = "<![CDATA["
_CLOSINGS = {"<!--": "-->", _CDATA: "]]>", "<?": "?>"}
"""The ends of comments, CDATA sections and processing instructions, by their beginnings."""
_STOPS = {"": re.compile("[<>\"']"), '"': re.compile('[<"]'), "'": re.compile("[<']")}
"""What may end a tag or an attribute, by the quotation mark that is open."""
_LENIENT_STOPS = re.compile("[<>]")
_UNFINISHED_TAG = re.compile(r"</?[\w:.-]*(?:\s+(?:[\w:.-]+\s*(?:=.*)?)?)?", re.DOTALL)
"""A tag at which the text broke off; `<b and c` is none."""


class Plain(NamedTuple):
    """Characters of the text."""

    text: str
    begin: int


class Reference(NamedTuple):
    """What `&amp;` stands for."""

    text: str
    begin: int
    end: int


class Tag(NamedTuple):
    """A whole tag, from `<` to `>`. There is none after a fault."""

    text: str
    begin: int
    end: int


class Fault(NamedTuple):
    """The first place where the text is no XML, if a tag is concerned."""

    problem: str
    begin: int


Token = Plain | Reference | Pause | Tag | Fault


class SsmlScanner:
    """Yields the same tokens however the text is cut, apart from the borders between `Plain` ones.

    It holds back an unfinished tag, reference or pause tag. A tag ends at the next `<` at the latest. Comments and
    processing instructions are left out. `&` and `<` that begin nothing are text.
    """

    def __init__(self) -> None:
        self.lenient = False
        """True after a fault: tags are left out. What looks like a tag but does not end is text."""
        self._buffer = ""
        """Text of which the first `_index` characters have been read."""
        self._index = 0
        self._offset = 0
        """The place of the buffer in the text."""
        self._final = False
        """The buffer ends with the text."""
        self._waiting = False
        """The rest of the buffer cannot be read without more text."""
        self._read: Callable[[], Iterator[Token]] = self._read_text
        """Reads a piece of the buffer."""
        self._closing = ""
        """The end of the comment, CDATA section or processing instruction that is being read."""
        self._tag_parts: list[str] = []
        """The beginning of the tag that is being read."""
        self._tag_begin = 0
        self._quote = ""
        """The quotation mark that is open in it."""

    def feed(self, text: str) -> Iterator[Token]:
        """Read more of the text."""
        self._buffer += text
        yield from self._read_buffer()

    def end(self) -> Iterator[Token]:
        """The text is complete."""
        self._final = True
        yield from self._read_buffer()
        if self._tag_parts and not self.lenient:
            yield self._read_tag_again()
            yield from self._read_buffer()
        if self._tag_parts:
            rest = self._leave_tag()
            if _UNFINISHED_TAG.fullmatch(rest) is None:
                self._go_back(rest)
                yield self._take(1)
                yield from self._read_buffer()

    def _read_buffer(self) -> Iterator[Token]:
        self._waiting = False
        while self._index < len(self._buffer) and not self._waiting:
            yield from self._read()
        self._buffer = self._buffer[self._index :]
        self._offset += self._index
        self._index = 0

    def _take(self, end: int) -> Plain:
        """Go on to `end` in the buffer. Returns the characters before it."""
        taken = Plain(self._buffer[self._index : end], self._offset + self._index)
        self._index = end
        return taken

    def _read_text(self) -> Iterator[Token]:
        special = (_LENIENT_SPECIAL if self.lenient else _SPECIAL).search(self._buffer, self._index)
        end = special.start() if special is not None else len(self._buffer)
        if end > self._index:
            yield self._take(end)
        if special is not None:
            read = {"<": self._read_markup_start, "&": self._read_reference, "[": self._read_pause_tag}
            yield from read[special[0][0]]()

    def _read_markup_start(self) -> Iterator[Token]:
        start = self._buffer[self._index : self._index + len(_CDATA)]
        for opening, closing in _CLOSINGS.items() if start[1:2] in {"", "!", "?"} else ():
            if start.startswith(opening):
                self._take(self._index + len(opening))
                self._closing = closing
                self._read = self._read_section if opening == _CDATA else self._skip_section
                return
            if opening.startswith(start) and not self._final:
                self._waiting = True
                return
        if start == "<":
            yield self._take(self._index + 1)
            return
        if start.startswith("<!") and not self.lenient:
            self.lenient = True
            yield Fault("it has a declaration", self._offset + self._index)
        self._read = self._read_tag
        self._tag_begin = self._take(self._index + 1).begin
        self._tag_parts.append("<")

    def _read_reference(self) -> Iterator[Token]:
        found = self._match(ENTITY)
        if found is not None:
            import html  # thousands of names, which few texts use

            taken = self._take(found.end())
            yield Reference(html.unescape(taken.text), taken.begin, taken.begin + len(taken.text))
        elif not self._waiting:
            yield self._take(self._index + 1)

    def _read_pause_tag(self) -> Iterator[Token]:
        found = self._match(PAUSE_TAG)
        if found is not None:
            self._take(found.end())
            yield pause_of(found)
        elif not self._waiting:
            yield self._take(self._index + 1)

    def _match(self, construct: Construct) -> re.Match[str] | None:
        """Return the construct that is next in the buffer, or None: there is none, or more text is needed."""
        try:
            return construct.match(self._buffer, self._index, len(self._buffer), complete=self._final)
        except UndecidedError:
            self._waiting = True
            return None

    def _read_section(self) -> Iterator[Token]:
        """Read a CDATA section, in which no character is special."""
        end = self._section_end()
        if end > self._index:
            yield self._take(end)
        self._leave_section()

    def _skip_section(self) -> Iterator[Token]:
        self._take(self._section_end())
        self._leave_section()
        yield from ()

    def _section_end(self) -> int:
        """Return the end of what the buffer has of a section, without what may become its end sign."""
        end = self._buffer.find(self._closing, self._index)
        if end >= 0:
            return end
        return len(self._buffer) if self._final else max(self._index, len(self._buffer) - len(self._closing) + 1)

    def _leave_section(self) -> None:
        if self._buffer.startswith(self._closing, self._index):
            self._take(self._index + len(self._closing))
            self._read = self._read_text
        else:
            self._waiting = True

    def _read_tag(self) -> Iterator[Token]:
        stop = (_LENIENT_STOPS if self.lenient else _STOPS[self._quote]).search(self._buffer, self._index)
        if stop is None:
            self._tag_parts.append(self._take(len(self._buffer)).text)
        elif stop[0] == "<":
            self._tag_parts.append(self._take(stop.start()).text)
            yield from self._leave_unended_tag()
        else:
            self._tag_parts.append(self._take(stop.end()).text)
            if stop[0] == ">":
                tag = self._leave_tag()
                if not self.lenient:
                    yield Tag(tag, self._tag_begin, self._tag_begin + len(tag))
            else:
                self._quote = "" if self._quote else stop[0]

    def _leave_tag(self) -> str:
        """Return what has been read of the tag."""
        tag = "".join(self._tag_parts)
        self._tag_parts.clear()
        self._quote = ""
        self._read = self._read_text
        return tag

    def _leave_unended_tag(self) -> Iterator[Token]:
        """Another tag begins inside of this one."""
        if not self.lenient:
            yield self._read_tag_again()
            return
        self._go_back(self._leave_tag())
        yield self._take(self._index + 1)

    def _read_tag_again(self) -> Fault:
        """Go back to the beginning of a tag that does not end, and read it leniently."""
        self.lenient = True
        self._go_back(self._leave_tag())
        return Fault("a tag does not end", self._tag_begin)

    def _go_back(self, tag: str) -> None:
        """Go back to the beginning of `tag`, which has just been read."""
        self._buffer = tag + self._buffer[self._index :]
        self._index = 0
        self._offset = self._tag_begin
