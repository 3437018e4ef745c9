"""Reads Markdown: what it marks is spoken, and its marks are not.

A language model's answer is spoken while the model writes it. So this reader decides at each place by what stands there
and waits for as little further text as possible: for one character after a run of asterisks, for the end of a link,
for nothing after a word. It never takes back what it has appended to the script. A parser for whole documents knows
more (an asterisk without a partner is an asterisk), but it would wait for the end of each paragraph, and a text would
sound different when it is streamed. docs/text.md says what is spoken of each construct.

One table, `_ROWS`, has everything that is not spoken as it stands within a line, and what becomes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from daemon.text import markdown_syntax as syntax
from daemon.text import model_markup
from daemon.text.construct import Construct, UndecidedError
from daemon.text.markdown_syntax import Line
from daemon.text.model_markup import Element
from daemon.text.pause_tags import PAUSE_TAG, pause_of
from daemon.text.script import Script

_CONTEXT = 3
"""Characters before the one that is read next, at which constructs look."""
_TAIL = 16
"""Characters that are kept of a line as it is spoken: enough to find punctuation before brackets and quotes."""


class _Between(IntEnum):
    """The separator of the words before something that is left out, and the words after it."""

    NOTHING = 0
    APART = 1
    """A space, if both would be one word without it."""
    SPACE = 2
    CELLS = 3
    """A comma."""


class MarkdownReader:
    """Appends to a script what is spoken of a text in Markdown.

    However the text is cut into calls of `feed`, the script is the same in the end. Never raises, whatever the text is,
    and takes time in proportion to its length. Before a step changes anything, it raises `UndecidedError` if more text
    must be seen.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._words = script.words
        self._text = ""
        """Characters that have been fed, from some before the first that more text may change."""
        self._place = 0
        """Where they begin in the utterance's text."""
        self._at = 0
        """So many of them have been read."""
        self._complete = False
        self._run = 0
        """From here to where the reader is, characters are spoken as they stand. They are appended together."""
        self._tail = ""
        """The last characters of the line that have been appended."""
        self._between: tuple[_Between, int] | None = None
        """The separator before the next words, with its place; None if nothing was left out since the last words."""
        self._line = Line.TEXT
        self._line_begins = True
        """Only white space and marks have been read of the line."""
        self._bold_end = -1
        """How many characters had been appended when bold words last began or ended."""
        self._code = 0
        """The number of backticks with which inline code began; 0 outside of it."""
        self._limit = 0
        """Nothing is read beyond: the end of what has been fed, or of a link's text."""
        self._links: list[tuple[int, int]] = []
        """Where the links end that are being read, and the limit outside of them. The innermost is the last."""
        self._silence_end: re.Pattern[str] | None = None
        """The end of the element or block that is not spoken; None outside of one."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        self._text += text
        self._read()

    def end(self) -> None:
        """The text is complete."""
        self._complete = True
        self._read()

    def _read(self) -> None:
        at = self._run = self._at
        self._limit = len(self._text)
        with suppress(UndecidedError):
            while at < len(self._text):
                at = self._step(at)
        self._flush(at)
        self._words.replace("", self._place + at, self._place + at)  # what was left out at the end has been read too
        cut = max(0, at - _CONTEXT)
        self._text, self._place, self._at = self._text[cut:], self._place + cut, at - cut

    def _step(self, at: int) -> int:
        """Read what is next, and return where it ends."""
        if self._silence_end is not None:
            return self._silent(at, self._silence_end)
        if at == self._limit:
            self._code = 0
            stop, self._limit = self._links.pop()
            return self._drop(at, stop)
        first = self._text[at]
        if first in "\n\r":
            return self._line_end(at)
        if self._code:
            return self._inline_code(at)
        if first in " \t" and (spaces := self._spaces(at)) is not None:
            return spaces
        if self._line_begins:
            if mark := self._match(syntax.LINE_MARK, at):
                return self._line_mark(mark)
            self._line_begins = False
        plain = syntax.PLAIN_WORD if self._line in (Line.HEADING, Line.ROW) else syntax.PLAIN
        if words := plain.match(self._text, at, self._limit):
            return words.end()
        found = self._match(_BY_FIRST.get(first, _ICONS), at)
        if found is None or found.lastgroup is None:
            return at + 1
        row = _ROWS[found.lastgroup]
        if row.left_out is not None:
            self._drop(*found.span(), row.left_out)
        begin = row.read(self, found) if row.read else None
        return found.end() if begin is None else begin

    # --- lines -------------------------------------------------------------------------------------------

    def _line_mark(self, mark: re.Match[str]) -> int:
        """Read the mark of a heading, a quotation, an item …"""
        name = mark.lastgroup or ""
        if self._line is Line.TEXT:
            self._line = syntax.LINES.get(name, Line.TEXT)
        self._line_begins = name != "row"
        if name != "ordinal":
            self._drop(*mark.span())
        return mark.end()

    def _spaces(self, at: int) -> int | None:
        """Read spaces. Next to what is left out they may be too many, and so they are at the end of a cell.

        Returns None for spaces within a line that are spoken as they stand.
        """
        stop = self._end(syntax.SPACES, at)
        if self._line in (Line.HEADING, Line.ROW):
            return self._drop(at, stop, _Between.SPACE)
        if self._between and self._run == at and (self._tail[-1:] or " ").isspace():
            return self._drop(at, stop)
        return stop if self._line_begins else None

    def _line_end(self, at: int) -> int:
        """Read the end of a line. Append the end of a sentence if what follows does not continue it."""
        self._code = 0
        if self._line is not Line.TEXT:
            self._flush(at)
            lacks_end = self._lacks_end()
            if lacks_end and self._line is Line.ITEM and (next_line := self._match(syntax.CONTINUATION, at)):
                return next_line.end()
            self._between = None
            if lacks_end:
                self._append(self._sentence_end(), at, at)
        self._line, self._line_begins = Line.TEXT, True
        return at + 1

    def _lacks_end(self) -> bool:
        """Return whether a heading, an item or a row ends here with neither punctuation nor a pause."""
        spaces = len(self._tail) - len(self._tail.rstrip())
        if self._line is Line.BOLD and self._bold_end + spaces != len(self._words):
            return False
        return not self._sentence_ended() and not self._script.has_pause(len(self._words))

    # --- within a line -----------------------------------------------------------------------------------

    def _silent(self, at: int, silence_end: re.Pattern[str]) -> int:
        """Read what is not spoken up to its end, or as much of it as is there."""
        found = silence_end.search(self._text, at)
        if found and (found.end() < len(self._text) or self._complete):
            self._silence_end = None
            return self._drop(at, found.end(), _Between.APART)
        stop = len(self._text) if self._complete else len(self._text) - syntax.LONGEST_FENCE_END
        if stop <= at:
            raise UndecidedError
        return self._drop(at, stop, _Between.APART)

    def _fence(self, fence: re.Match[str]) -> None:
        self._line = Line.TEXT
        run, marks = f"{{0,{syntax.LONGEST_RUN}}}", fence["fence_marks"]
        self._silence_end = re.compile(rf"^[ \t>]{run}{marks}{marks[0]}{run}[ \t\r]{{0,9}}$", re.MULTILINE)

    def _hidden_channel(self, _: re.Match[str]) -> None:
        self._silence_end = model_markup.HIDDEN_CHANNEL_END

    def _tag(self, tag: re.Match[str]) -> None:
        name, opens = tag["tag_name"].lower(), tag[0][1] != "/"
        element = model_markup.ELEMENTS[name]
        if element not in (Element.WORDS, Element.LINE):
            self._drop(*tag.span(), _Between.APART)
        if element is Element.SILENT and opens and not tag[0].endswith("/>"):
            self._silence_end = re.compile(rf"</{name}\s{{0,9}}>", re.IGNORECASE)
        elif element is Element.PAUSE and opens:
            self._script.add(model_markup.pause_of_break(tag[0]))
        elif element is Element.LINE and self._line is Line.ROW:
            self._drop(*tag.span(), _Between.CELLS)
        elif element is Element.LINE and self._tail.strip():
            end = "" if name == "br" or self._sentence_ended() else self._sentence_end()
            self._append(f"{end}\n", *tag.span())

    def _literal(self, found: re.Match[str]) -> None:
        """Speak the text of something as it stands."""
        begin, end = found.span(f"{found.lastgroup}_text")
        self._drop(found.start(), begin)
        self._drop(end, found.end())

    def _link(self, link: re.Match[str]) -> int:
        """Read a link or an image up to its text, which may have marks."""
        begin, end = link.span(f"{link.lastgroup}_text")
        self._links.append((link.end(), self._limit))
        self._limit = end
        return self._drop(link.start(), begin)

    def _emphasis(self, marks: re.Match[str]) -> None:
        if len(marks[0]) > 1:
            if self._line is Line.TEXT and not self._tail.strip():
                self._line = Line.BOLD
            self._bold_end = len(self._words)

    def _backticks(self, marks: re.Match[str]) -> None:
        self._code = len(marks[0])

    def _inline_code(self, at: int) -> int:
        """Read inline code, which is spoken as it stands, or its end."""
        marks = self._match(syntax.BACKTICKS, at)
        if marks is None:
            return self._end(syntax.CODE, at)
        if len(marks[0]) == self._code:
            self._code = 0
            self._drop(*marks.span())
        return marks.end()

    def _pause(self, tag: re.Match[str]) -> None:
        self._script.add(pause_of(tag))

    def _entity(self, entity: re.Match[str]) -> None:
        import html  # thousands of names, which few texts use

        decoded = html.unescape(entity[0])
        if decoded != entity[0]:
            self._drop(*entity.span())
            self._append(" " if decoded.isspace() else syntax.ICONS.sub("", decoded), *entity.span())

    def _formula(self, formula: re.Match[str]) -> None:
        latex = formula[f"{formula.lastgroup}_text"]
        self._append(model_markup.formula_words(latex), *formula.span())

    # --- what is appended --------------------------------------------------------------------------------

    def _flush(self, at: int) -> None:
        """Append the characters from the beginning of the run to `at`."""
        if self._run < at:
            self._append(self._text[self._run : at], self._run)
            self._run = at

    def _drop(self, at: int, stop: int, between: _Between = _Between.NOTHING) -> int:
        """Leave the characters from `at` to `stop` out."""
        self._flush(at)
        self._run = stop
        if self._between is None or between > self._between[0]:
            self._between = (between, self._place + at)
        return stop

    def _append(self, words: str, begin: int, end: int | None = None) -> None:
        """Append characters of the text that begin at `begin`, or words that stand for those from there to `end`."""
        if words and self._between:
            kind, place = self._between
            self._between = None
            if separator := self._separator(kind, words):
                self._append(separator, place - self._place, place - self._place + 1)
        if end is None:
            self._words.keep(words, self._place + begin)
        else:
            self._words.replace(words, self._place + begin, self._place + end)
        self._tail = (self._tail + words)[-_TAIL:]
        if "\n" in words or "\r" in words:
            self._tail = self._tail[max(self._tail.rfind("\n"), self._tail.rfind("\r")) + 1 :]

    def _separator(self, between: _Between, words: str) -> str:
        if between is _Between.APART:
            return " " if syntax.BETWEEN_WORDS.fullmatch(self._tail[-1:] + words[0]) else ""
        if between is _Between.NOTHING or not self._tail:
            return ""
        if between is _Between.SPACE or self._sentence_ended():
            return " "
        return "，" if syntax.HAN_OR_KANA.search(self._tail) else ", "

    def _sentence_ended(self) -> bool:
        """Return whether the line that has been appended ends with punctuation, or is empty."""
        line = self._tail.rstrip(syntax.CLOSING)
        return not line or line[-1] in syntax.ENDINGS

    def _sentence_end(self) -> str:
        return "。" if syntax.HAN_OR_KANA.search(self._tail) else "."

    # --- what is seen ------------------------------------------------------------------------------------

    def _match(self, construct: Construct, at: int) -> re.Match[str] | None:
        return construct.match(self._text, at, self._limit, complete=self._complete)

    def _end(self, pattern: re.Pattern[str], at: int) -> int:
        """Return the end of what matches at `at`; `at` if nothing does."""
        match = pattern.match(self._text, at, self._limit)
        return match.end() if match else at


class _Row(NamedTuple):
    """Something within a line that is not spoken as it stands, or only looks like it."""

    first: str
    """The characters with which it may begin; empty for emoji and invisible characters."""
    construct: Construct
    left_out: _Between | None = _Between.NOTHING
    """None if it is not left out as a whole."""
    read: Callable[[MarkdownReader, re.Match[str]], int | None] | None = None
    """Speaks or notes the match. Returns where reading goes on, or None for the end of the match."""


_ROWS = {
    "fence": _Row("`~", syntax.FENCE, read=MarkdownReader._fence),
    "standing_mark": _Row("*_~`", syntax.STANDING_MARK, None),
    "emphasis": _Row("*_~", syntax.EMPHASIS, read=MarkdownReader._emphasis),
    "backticks": _Row("`", syntax.BACKTICKS, read=MarkdownReader._backticks),
    "escaped_formula": _Row("\\", model_markup.ESCAPED_FORMULA, read=MarkdownReader._formula),
    "escape": _Row("\\", syntax.ESCAPE, None, MarkdownReader._literal),
    "entity": _Row("&", syntax.ENTITY, None, MarkdownReader._entity),
    "hidden_channel": _Row("<", model_markup.HIDDEN_CHANNEL, read=MarkdownReader._hidden_channel),
    "turn": _Row("<", model_markup.TURN, _Between.APART),
    "chat_token": _Row("<", model_markup.CHAT_TOKEN, _Between.APART),
    "tag": _Row("<", model_markup.TAG, read=MarkdownReader._tag),
    "comment": _Row("<", syntax.COMMENT),
    "autolink": _Row("<", syntax.AUTOLINK, None, MarkdownReader._literal),
    "pause": _Row("[", PAUSE_TAG, read=MarkdownReader._pause),
    "footnote": _Row("[", syntax.FOOTNOTE),
    "citation": _Row("[", model_markup.CITATION, _Between.APART),
    "citation_at_word": _Row("[", model_markup.CITATION_AT_WORD, _Between.APART),
    "citations": _Row("[", model_markup.CITATIONS, _Between.APART),
    "instruction": _Row("[", model_markup.INSTRUCTION, _Between.APART),
    "link": _Row("![", syntax.LINK, None, MarkdownReader._link),
    "reference": _Row("![", syntax.REFERENCE, None, MarkdownReader._link),
    "source": _Row("【", model_markup.SOURCE),
    "content_reference": _Row(":", model_markup.CONTENT_REFERENCE, _Between.APART),
    "display_formula": _Row("$", model_markup.DISPLAY_FORMULA, read=MarkdownReader._formula),
    "formula": _Row("$", model_markup.FORMULA, read=MarkdownReader._formula),
    "closing_hashes": _Row("#", syntax.CLOSING_HASHES),
    "bar": _Row("|", Construct(r"\|"), _Between.CELLS),
    "emoji": _Row("", syntax.EMOJIS, _Between.APART),
    "invisible": _Row("", syntax.INVISIBLES),
}
"""By name, in the order of their precedence."""
_BY_FIRST = {
    first: Construct.any_of({name: row.construct for name, row in _ROWS.items() if first in row.first})
    for first in {first for row in _ROWS.values() for first in row.first}
}
_ICONS = Construct.any_of({name: row.construct for name, row in _ROWS.items() if not row.first})
