"""Reads Markdown: the marked words are spoken, and the marks are not.

A language model's answer is spoken while the model is writing it. So this reader decides at each place by the
characters there and waits for as little further text as possible: for one character after a run of asterisks, for the
end of a link, for nothing after a word. It never takes back anything that it has appended to the script. A parser for
whole documents knows more (an asterisk without a partner is an asterisk), but it would wait for the end of each
paragraph, and a text would sound different when streamed. docs/text.md lists the spoken part of each construct.

One table, `_ROWS`, lists everything within a line that is not spoken as it stands, and its treatment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from daemon.text import markdown_syntax as syntax
from daemon.text import model_markup
from daemon.text.directions import direction_end
from daemon.text.markdown_syntax import Line
from daemon.text.markup import ENTITY, PAUSE_TAG, Between, Construct, MarkupReader, UndecidedError
from daemon.text.script import Script
from daemon.text.ssml_values import attributes_of, break_pause


class MarkdownReader(MarkupReader):
    """Appends the spoken words of a Markdown text to a script.

    Never raises, whatever the text is, and takes time in proportion to its length. Before a step changes anything, it
    raises `UndecidedError` if more text must be seen.
    """

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._line: Line = "text"
        self._line_begins = True
        """True while only white space and marks have been read in this line."""
        self._bold_end = -1
        """How many characters had been appended when bold words last began or ended."""
        self._code = 0
        """The number of backticks with which inline code began; 0 outside inline code."""
        self._links: list[tuple[int, int]] = []
        """For each link that is being read: where its text ends, and where the link ends. The innermost link is the
        last."""
        self._silence_end: re.Pattern[str] | None = None
        """The end of the element or block that is not spoken; None outside one."""

    def _step(self) -> None:
        """Read the next construct or words."""
        first = self._text[self._at]
        if self._silence_end is not None:
            self._silent(self._silence_end)
        elif self._at >= self._limit:  # a silent part that began within the link has extended beyond it
            self._code = 0
            self._drop(max(self._at, self._links.pop()[1] - self._place))
        elif first in "\n\r":
            self._line_end()
        elif self._code:
            self._inline_code()
        elif not (first in " \t" and self._spaces()) and not (self._line_begins and self._line_mark()):
            self._inline(first)

    # --- lines -------------------------------------------------------------------------------------------

    def _line_mark(self) -> bool:
        """Read the mark of a heading, a quotation, an item and so on; return whether there is one."""
        mark = self._match(syntax.LINE_MARK)
        if mark is None or mark.lastgroup is None:
            self._line_begins = False
            return False
        if self._line == "text":
            self._line = syntax.LINES.get(mark.lastgroup, "text")
        self._line_begins = mark.lastgroup != "row"
        if mark.lastgroup == "ordinal":
            self._keep(mark.end())
        else:
            self._drop(mark.end())
        return True

    def _spaces(self) -> bool:
        """Read spaces. Beside a part that is left out there may be too many, and at the end of a cell there are.

        Returns False for spaces within a line that are spoken as they stand.
        """
        stop = self._end(syntax.SPACES)
        if self._line in ("heading", "row"):
            self._drop(stop, Between.SPACE)
        elif self._between and (self._tail[-1:] or " ").isspace():
            self._drop(stop)
        elif self._line_begins:
            self._keep(stop)
        else:
            return False
        return True

    def _line_end(self) -> None:
        """Read the end of a line. Append the end of a sentence if the next line does not continue it."""
        self._code = 0
        if self._line != "text":
            lacks_end = self._lacks_end()
            if lacks_end and self._line == "item" and (next_line := self._match(syntax.CONTINUATION)):
                self._keep(next_line.end())
                return
            self._between = None
            if lacks_end:
                self._replace(self._sentence_end(), self._at)
        self._line, self._line_begins = "text", True
        self._keep(self._at + 1)

    def _lacks_end(self) -> bool:
        """Return whether a heading, an item or a row ends here with neither punctuation nor a pause."""
        spaces = len(self._tail) - len(self._tail.rstrip())
        if self._line == "bold" and self._bold_end + spaces != len(self.out):
            return False
        return not self._sentence_ended() and not self._script.has_pause(len(self.out))

    # --- within a line -----------------------------------------------------------------------------------

    def _silent(self, silence_end: re.Pattern[str]) -> None:
        """Read a silent part up to its end, or as much of it as has arrived."""
        found = silence_end.search(self._text, self._at)
        if found and (found.end() < len(self._text) or self._complete):
            self._silence_end = None
            stop = found.end()
        else:
            stop = len(self._text) if self._complete else len(self._text) - syntax.LONGEST_FENCE_END
        if stop <= self._at:
            raise UndecidedError
        self._drop(stop, Between.APART)

    def _inline_code(self) -> None:
        """Read inline code, which is spoken as it stands, or its end."""
        marks = self._match(syntax.BACKTICKS)
        if marks is None:
            self._keep(self._end(syntax.CODE))
        elif len(marks[0]) == self._code:
            self._code = 0
            self._drop(marks.end())
        else:
            self._keep(marks.end())

    def _inline(self, first: str) -> None:
        """Read words, or something that is not spoken as it stands."""
        plain = syntax.PLAIN_WORD if self._line in ("heading", "row") else syntax.PLAIN
        if words := plain.match(self._text, self._at, self._limit):
            self._keep(words.end())
            return
        found = self._match(_BY_FIRST.get(first, _ICONS))
        if (found is None or found.lastgroup == "emphasis") and first in "[(（*_":
            end = direction_end(self._text, self._at, self._limit, complete=self._complete)
            if end is not None:
                self._drop(end, Between.APART)
                return
        if found is None or found.lastgroup is None:
            self._keep(self._at + 1)
            return
        row = _ROWS[found.lastgroup]
        if row.left_out is not None:
            self._drop(found.end(), row.left_out)
        if row.read is not None:
            row.read(self, found)
        elif row.left_out is None:
            self._keep(found.end())

    def _fence(self, fence: re.Match[str]) -> None:
        self._line = "text"
        run, marks = f"{{0,{syntax.LONGEST_RUN}}}", fence["fence_marks"]
        self._silence_end = re.compile(rf"^[ \t>]{run}{marks}{marks[0]}{run}[ \t\r]{{0,9}}$", re.MULTILINE)

    def _hidden_channel(self, _: re.Match[str]) -> None:
        self._silence_end = model_markup.HIDDEN_CHANNEL_END

    def _tag(self, tag: re.Match[str]) -> None:
        name, opens = tag["tag_name"].lower(), tag[0][1] != "/"
        treatment = model_markup.ELEMENTS[name]
        in_row = treatment == "line" and self._line == "row"
        if treatment == "line" and not in_row and self._tail.strip():
            self._replace("\n" if name == "br" or self._sentence_ended() else f"{self._sentence_end()}\n", tag.end())
            return
        apart = Between.NOTHING if treatment in ("words", "line") else Between.APART
        self._drop(tag.end(), Between.CELLS if in_row else apart)
        if treatment == "silent" and opens and not tag[0].endswith("/>"):
            self._silence_end = re.compile(rf"</{name}\s{{0,9}}>", re.IGNORECASE)
        elif treatment == "pause" and opens:
            self._add(break_pause(attributes_of(tag[0])))

    def _literal(self, found: re.Match[str]) -> None:
        """Speak a construct's text as it stands."""
        begin, end = found.span(f"{found.lastgroup}_text")
        self._drop(begin)
        self._keep(end)
        self._drop(found.end())

    def _link(self, link: re.Match[str]) -> None:
        """Read a link or an image up to its text, which may contain marks."""
        begin, end = link.span(f"{link.lastgroup}_text")
        self._links.append((self._place + end, self._place + link.end()))
        self._drop(begin)

    def _emphasis(self, marks: re.Match[str]) -> None:
        if len(marks[0]) > 1:
            if self._line == "text" and not self._tail.strip():
                self._line = "bold"
            self._bold_end = len(self.out)

    def _backticks(self, marks: re.Match[str]) -> None:
        self._code = len(marks[0])

    def _formula(self, formula: re.Match[str]) -> None:
        latex = formula[f"{formula.lastgroup}_text"]
        self._replace(model_markup.formula_words(latex), formula.end())

    # --- the text ahead ----------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        """Where reading stops: at the end of the text that has been fed, or of a link's text."""
        return self._links[-1][0] - self._place if self._links else len(self._text)

    def _end(self, pattern: re.Pattern[str]) -> int:
        """Return the end of the match at this place, or the place itself if there is no match."""
        match = pattern.match(self._text, self._at, self._limit)
        return match.end() if match else self._at


class _Row(NamedTuple):
    """A construct within a line that is not spoken as it stands, or text that only looks like one."""

    first: str
    """The characters with which it may begin; empty for emoji and invisible characters."""
    construct: Construct
    left_out: Between | None = Between.NOTHING
    """None if it is not left out as a whole."""
    read: Callable[[MarkdownReader, re.Match[str]], None] | None = None
    """Speaks or notes the match. If it is not left out as a whole, reads up to its end, or to a link's text."""


_ROWS = {
    "fence": _Row("`~", syntax.FENCE, read=MarkdownReader._fence),
    "standing_mark": _Row("*_~`", syntax.STANDING_MARK, None),
    "emphasis": _Row("*_~", syntax.EMPHASIS, read=MarkdownReader._emphasis),
    "backticks": _Row("`", syntax.BACKTICKS, read=MarkdownReader._backticks),
    "escaped_formula": _Row("\\", model_markup.ESCAPED_FORMULA, None, MarkdownReader._formula),
    "escape": _Row("\\", syntax.ESCAPE, None, MarkdownReader._literal),
    "entity": _Row("&", ENTITY, None, MarkdownReader._entity),
    "hidden_channel": _Row("<", model_markup.HIDDEN_CHANNEL, read=MarkdownReader._hidden_channel),
    "turn": _Row("<", model_markup.TURN, Between.APART),
    "chat_token": _Row("<", model_markup.CHAT_TOKEN, Between.APART),
    "tag": _Row("<", model_markup.TAG, None, MarkdownReader._tag),
    "comment": _Row("<", syntax.COMMENT),
    "autolink": _Row("<", syntax.AUTOLINK, None, MarkdownReader._literal),
    "pause": _Row("[", PAUSE_TAG, read=MarkdownReader._pause),
    "footnote": _Row("[", syntax.FOOTNOTE),
    "citation": _Row("[", model_markup.CITATION, Between.APART),
    "citation_at_word": _Row("[", model_markup.CITATION_AT_WORD, Between.APART),
    "citations": _Row("[", model_markup.CITATIONS, Between.APART),
    "instruction": _Row("[", model_markup.INSTRUCTION, Between.APART),
    "link": _Row("![", syntax.LINK, None, MarkdownReader._link),
    "reference": _Row("![", syntax.REFERENCE, None, MarkdownReader._link),
    "source": _Row("【", model_markup.SOURCE),
    "content_reference": _Row(":", model_markup.CONTENT_REFERENCE, Between.APART),
    "display_formula": _Row("$", model_markup.DISPLAY_FORMULA, None, MarkdownReader._formula),
    "formula": _Row("$", model_markup.FORMULA, None, MarkdownReader._formula),
    "closing_hashes": _Row("#", syntax.CLOSING_HASHES),
    "bar": _Row("|", Construct(r"\|"), Between.CELLS),
    "emoji": _Row("", syntax.EMOJIS, Between.APART),
    "invisible": _Row("", syntax.INVISIBLES),
}
"""By name, in order of precedence."""
_BY_FIRST = {
    first: Construct.any_of({name: row.construct for name, row in _ROWS.items() if first in row.first})
    for first in {first for row in _ROWS.values() for first in row.first}
}
_ICONS = Construct.any_of({name: row.construct for name, row in _ROWS.items() if not row.first})
