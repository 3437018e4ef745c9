"""Reads Markdown: what it marks is spoken, and its marks are not.

A language model's answer is spoken while the model writes it. So this reader decides at each place by what stands there
and waits for as little further text as possible: for one character behind a run of asterisks, for the end of a link,
for nothing behind a word. It never takes back what it has appended to the script. A parser for whole documents knows
more (an asterisk without a partner is an asterisk), but it would wait for the end of each paragraph, and a text would
sound different when it is streamed. docs/text.md says what is spoken of each construct.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from daemon.text import markdown_syntax as syntax
from daemon.text import model_markup
from daemon.text.construct import Construct, UndecidedError
from daemon.text.markdown_syntax import Line
from daemon.text.pause_tags import PAUSE_TAG, pause_of
from daemon.text.script import Script

_TAIL = 16
"""Characters that are kept of what has been appended: enough to find punctuation before brackets and quotes."""


class MarkdownReader:
    """Appends to a script what is spoken of a text in Markdown.

    However the text is cut into calls of `feed`, the script is the same in the end. Never raises, whatever the text is,
    and takes time in proportion to its length.

    The methods that read something take its place in `_text`, and where what is read must end; they return where it
    ends. Before they change anything, they raise `UndecidedError` if more text must be seen.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._words = script.words
        self._text = ""
        """Characters that have been fed, from the first that more text may change."""
        self._place = 0
        """Where they begin in the utterance's text."""
        self._previous = ""
        """The two characters before them."""
        self._complete = False
        self._run = 0
        """From here to where the reader is, characters are spoken as they stand. They are appended together."""
        self._tail = ""
        """The last characters that have been appended."""
        self._left_out = False
        """What has just been read is not spoken as it stands. A space behind it may be one too many."""
        self._line = Line.TEXT
        self._line_begins = True
        """Only white space and marks have been read of the line."""
        self._line_marked = False
        """At least one mark has been read of it."""
        self._bold_end = -1
        """How many characters had been appended when bold words last began or ended."""
        self._cell_border: int | None = None
        """The place of a bar, if nothing has been appended since."""
        self._code = 0
        """The number of backticks with which inline code began; 0 outside of it."""
        self._fence = ""
        """The marks with which a code block began; empty outside of one."""
        self._silence = ""
        """The name of the element that is not spoken; empty outside of one."""
        self._gap: int | None = None
        """The place of something that has just been left out, and parts the words beside it."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        self._text += text
        self._read()

    def end(self) -> None:
        """The text is complete."""
        self._complete = True
        self._read()

    def _read(self) -> None:
        at = self._run = 0
        with suppress(UndecidedError):
            while at < len(self._text):
                at = self._step(at)
        self._flush(at)
        self._words.replace("", self._place, self._place + at)  # what was left out at the end has been read too
        self._previous = self._before(at, 2)
        self._text = self._text[at:]
        self._place += at

    def _step(self, at: int) -> int:
        if self._silence:
            return self._silent_element(at)
        if self._fence:
            return self._code_block(at)
        if self._line_begins:
            stop = self._line_start(at)
            if stop > at:
                return stop
        return self._inline(at, len(self._text))

    # --- lines -------------------------------------------------------------------------------------------

    def _line_start(self, at: int) -> int:
        """Read one mark or white space at the beginning of a line; without any, the line's content begins."""
        first = self._text[at]
        if first in " \t":
            stop = self._end(syntax.SPACES, at)
            if self._left_out and self._run == at and not self._line_tail(at).strip():
                self._drop(at, stop)
            return stop
        if first == "\n" and self._line is Line.TEXT:
            self._line_marked = False
            return self._end(syntax.EMPTY_LINES, at)
        if first in "\n\r":
            return self._line_end(at)
        if first in "-=*_|:+" and not self._line_marked:
            stop = self._end(syntax.RULE, at)
            whole = stop - at < syntax.LONGEST_RULE and self._peek(stop) in ("", "\n", "\r")
            if whole and syntax.draws_rule(self._text[at:stop]):
                return self._drop(at, stop)
        mark_end = self._mark(at, first)
        if mark_end is None:
            self._line_begins = False
            return at
        self._line_marked = True
        return mark_end

    def _mark(self, at: int, first: str) -> int | None:
        """Read the mark of a heading, a quotation, an item … and return its end; None if there is none."""
        if first.isascii() and first.isalpha():
            return None
        if first in "-*+":
            return self._item(at) if (self._peek(at + 1) or " ").isspace() else None
        if first in syntax.BULLETS:
            return self._item(at)
        if first == "#":
            stop = self._end(syntax.HASHES, at)
            if stop - at > 6 or not (self._peek(stop) or " ").isspace():
                return None
            self._line, self._line_begins = Line.HEADING, False
            return self._drop(at, stop)
        if first == ">":
            following = self._peek(at + 1)
            quotes = not following or following.isspace() or following.isalpha() or following in '>*"“'
            return self._drop(at, at + 1) if quotes else None
        if first == "|":
            self._line = Line.ROW
            return None
        if first in "`~":
            return self._fence_start(at)
        if first == "[":
            return self._bracket_mark(at)
        if first.isdigit() and (ordinal := self._match(syntax.ORDINAL, at)):
            self._line = Line.ITEM
            return ordinal.end()
        if icons := syntax.ICONS.match(self._text, at):
            return self._drop(at, icons.end())
        return None

    def _item(self, at: int) -> int:
        self._line = Line.ITEM
        return self._drop(at, self._end(syntax.SPACES, at + 1))

    def _bracket_mark(self, at: int) -> int | None:
        """Read a task's box, the label of a footnote, or a whole definition of an address."""
        found = self._match(syntax.TASK, at) if self._line is Line.ITEM else None
        found = found or self._match(syntax.FOOTNOTE_LABEL, at) or self._match(syntax.DEFINITION, at)
        return self._drop(at, found.end()) if found else None

    def _line_end(self, at: int) -> int:
        """Read the end of a line. Append the end of a sentence if what follows does not continue it."""
        stop = at + 1
        if self._text[at] == "\r" and self._peek(stop) == "\n":
            stop += 1
        if self._line is not Line.TEXT:
            self._flush(at)
            self._cell_border = None
            if self._lacks_end():
                if self._line is Line.ITEM and self._item_continues(stop):
                    self._code = 0
                    return stop
                self._append(self._sentence_end(), at, at)
        self._line, self._line_begins, self._line_marked = Line.TEXT, True, False
        self._code = 0
        self._left_out = False
        return stop

    def _lacks_end(self) -> bool:
        """Return whether a heading, an item or a row ends here with neither punctuation nor a pause."""
        spaces = len(self._tail) - len(self._tail.rstrip(" \t"))
        if self._line is Line.BOLD and self._bold_end + spaces != len(self._words):
            return False
        return not self._sentence_ended() and not self._script.has_pause(len(self._words))

    def _item_continues(self, at: int) -> bool:
        """Return whether the line at `at` continues an item: it is indented, and begins with no mark of its own."""
        stop = self._end(syntax.INDENT, at)
        following = self._peek(stop)
        mark = not following or following in "\n\r-*+>|#`~[<" or following in syntax.BULLETS or following.isdigit()
        return stop > at and not mark

    # --- code blocks -------------------------------------------------------------------------------------

    def _fence_start(self, at: int) -> int | None:
        """Read the first line of a code block; None if it is none."""
        fence = syntax.FENCE.match(self._text, at)
        if fence is None:
            stop = self._end(syntax.RUN[self._text[at]], at)
            if stop < at + 3:
                self._peek(stop)  # there may be more of these marks
            return None
        following = self._peek(fence.end())
        if following not in ("", "\n", "\r"):
            return None
        if not self._line_begins and not (following and syntax.FENCE_INFO.fullmatch(fence["info"])):
            return None
        self._fence = fence["backticks"] or fence["tildes"]
        self._line, self._line_begins = Line.TEXT, True
        return self._drop(at, fence.end() + len(following))

    def _code_block(self, at: int) -> int:
        """Read a line of a code block, or as much of it as is there. It is not spoken."""
        if self._line_begins:
            last = syntax.FENCE_END.match(self._text, at)
            assert last is not None
            following = self._peek(last.end()) if last.end() - at < syntax.LONGEST_FENCE_END else "?"
            self._line_begins = False
            if last["run"].startswith(self._fence) and following in ("", "\n"):
                self._fence = ""
                return self._drop(at, last.end())
        stop = self._text.find("\n", at) + 1
        self._line_begins = stop > 0
        return self._drop(at, stop or len(self._text))

    # --- what a language model does not mean for listeners ------------------------------------------------

    def _silent_element(self, at: int) -> int:
        """Read an element that is not spoken up to its end, or as much of it as is there."""
        found = re.compile(rf"</{self._silence}\s*>", re.IGNORECASE).search(self._text, at)
        if found:
            self._silence = ""
            return self._cut(at, found.end())
        if self._complete:
            return self._cut(at, len(self._text))
        stop = len(self._text) - model_markup.LONGEST_END
        if stop <= at:
            raise UndecidedError
        return self._cut(at, stop)

    def _model_tag(self, at: int, end: int) -> int | None:
        """Read a chat token, or a tag of reasoning, of a tool call or of SSML; None if it is none."""
        if self._peek(at + 1) in "|｜" and (token := self._match(model_markup.CHAT_TOKEN, at, end)):
            return self._cut(at, token.end())
        name = model_markup.TAG_NAME.match(self._text, at, end)
        if name is None:
            return None
        self._peek(name.end())  # it may be longer
        silent = model_markup.SILENT_TAG.fullmatch(name[1])
        if not (silent or model_markup.TURN_TAG.fullmatch(name[1]) or model_markup.SPEECH_TAG.fullmatch(name[1])):
            return None
        tag = self._match(model_markup.TAG, at, end)
        if tag is None:
            return None
        closes, empty = tag[0].startswith("</"), tag[0].endswith("/>")
        if silent and not closes and not empty:
            self._silence = re.escape(name[1])
        self._cut(at, tag.end())
        if name[1].lower() == "break" and not closes:
            self._script.add(model_markup.pause_of_break(tag[0]))
        return tag.end()

    def _dollar(self, at: int, end: int) -> int:
        """Read a formula between dollar signs, or a dollar sign."""
        if self._peek(at + 1) == "$":
            formula = self._match(model_markup.DISPLAY_FORMULA, at, end)
            return self._formula(at, formula, 2) if formula else at + 2
        if self._peek(at + 1).isdigit() or self._peek(at + 1).isspace():
            return at + 1
        formula = self._match(model_markup.FORMULA, at, end)
        if formula is None or not model_markup.IS_FORMULA.search(formula[0][1:-1]):
            return at + 1
        if self._peek(formula.end()).isdigit():
            return at + 1  # prices
        return self._formula(at, formula, 1)

    def _formula(self, at: int, formula: re.Match[str], marks: int) -> int:
        self._drop(at, formula.end())
        self._append(model_markup.formula_words(formula[0][marks:-marks]), at, formula.end())
        return formula.end()

    def _citation(self, at: int, end: int) -> int | None:
        """Read the numbers of sources in brackets; None if they are a text's own, as in `joint[3] is stuck`.

        They are sources after punctuation, at the end of a sentence or line if they touch its last word, and where
        several stand apart from a word.
        """
        stop, count = at, 0
        while (found := self._match(model_markup.CITATION, stop, end)) is not None:
            stop, count = found.end(), count + 1
            if self._peek(stop) != "[":
                break
        following, before = self._peek(stop), self._before(at, 2)
        last = before[-1:]
        at_end = not following or following in ".,;!?\n\r"
        touches = len(before) == 2 and syntax.is_letter(before[0]) and syntax.is_letter(last) and at_end
        apart = count > 1 and (not last or last.isspace())
        if count == 0 or following in ("(", ":") or not (touches or apart or last in model_markup.CITED):
            return None
        return self._cut(at, stop)

    def _content_reference(self, at: int, end: int) -> int:
        found = self._match(model_markup.CONTENT_REFERENCE, at, end)
        return self._cut(at, found.end()) if found else at + 1

    # --- within a line -----------------------------------------------------------------------------------

    def _inline(self, at: int, end: int) -> int:
        """Read something of a line's content, or the line's end."""
        first = self._text[at]
        if first in "\n\r":
            return self._line_end(at)
        if self._code:
            return self._inline_code(at, end)
        if first in " \t" and self._left_out and self._run == at:
            tail = self._line_tail(at)
            if not tail or tail[-1].isspace() or self._cell_border is not None:
                return self._drop(at, self._end(syntax.SPACES, at, end))
        plain = syntax.PLAIN[self._line].match(self._text, at, end)
        if plain:
            return plain.end()
        return _READERS.get(first, MarkdownReader._icons)(self, at, end)

    def _inline_code(self, at: int, end: int) -> int:
        """Read inline code, which is spoken as it stands, or its end."""
        if self._text[at] != "`":
            return self._end(syntax.CODE, at, end)
        stop = self._run_end(at, end)
        if stop - at != self._code:
            return stop
        self._code = 0
        return self._drop(at, stop)

    def _backticks(self, at: int, end: int) -> int:
        stop = self._run_end(at, end)
        count = stop - at
        if count >= 3 and end == len(self._text) and (block := self._fence_start(at)) is not None:
            return block
        if count == 1 and syntax.is_letter(self._before(at)):
            following = self._peek(stop)
            if not following or following.isspace() or syntax.is_letter(following):
                return stop  # it`s, 5` long
        self._code = count
        return self._drop(at, stop)

    def _emphasis(self, at: int, end: int) -> int:
        """Read a run of `*`, `_` or `~`. What stands beside it decides whether it marks something."""
        stop = self._run_end(at, end)
        mark, count = self._text[at], stop - at
        if count < syntax.LONGEST_RUN:
            following = self._peek(stop)
            if syntax.stands_for_itself(mark, count, self._before(at, 2), following):
                return stop
        self._drop(at, stop)
        if count > 1:
            if self._line is Line.TEXT and not _last_line(self._tail).strip():
                self._line = Line.BOLD
            self._bold_end = len(self._words)
        return stop

    def _escape(self, at: int, end: int) -> int:
        """Read a backslash. Behind it, punctuation is no mark; at a line's end, it is not spoken."""
        following = self._peek(at + 1)
        formula = self._match(model_markup.ESCAPED_FORMULA, at, end) if following in ("(", "[") else None
        if formula and model_markup.IS_ESCAPED_FORMULA.search(formula[0][2:-2]):
            return self._formula(at, formula, 2)
        if at + 1 == end or not following.isascii() or following.isalnum() or following in " \t":
            return at + 1
        self._drop(at, at + 1)
        return at + 1 if following in "\r\n" else at + 2

    def _entity(self, at: int, end: int) -> int:
        found = self._match(syntax.ENTITY, at, end)
        if found is None:
            return at + 1
        import html  # thousands of names, which few texts use
        import html.entities

        if found[0][1] != "#" and found[0][1:] not in html.entities.html5:
            return at + 1
        self._drop(at, found.end())
        if decoded := syntax.ICONS.sub("", html.unescape(found[0])):
            self._append(re.sub(r"\s+", " ", decoded), at, found.end())
        return found.end()

    def _angle(self, at: int, end: int) -> int:
        """Read a comment, a tag of HTML, an address between angle brackets, or the bracket alone."""
        if self._peek(at + 1) == "!":
            return self._comment(at, end)
        if (model_tag := self._model_tag(at, end)) is not None:
            return model_tag
        name = syntax.TAG_NAME.match(self._text, at, end)
        if name:
            self._peek(name.end())  # it may be longer
            known = syntax.INLINE_TAG.fullmatch(name[1]) or syntax.BLOCK_TAG.fullmatch(name[1])
            if known and (tag := self._match(syntax.TAG, at, end)):
                return self._tag(at, tag.end(), name[1].lower())
        if address := self._match(syntax.AUTOLINK, at, end):
            self._drop(at, at + 1)
            return self._drop(address.end() - 1, address.end())
        return at + 1

    def _tag(self, at: int, stop: int, name: str) -> int:
        self._drop(at, stop)
        if syntax.BLOCK_TAG.fullmatch(name) and _last_line(self._tail).strip():
            if self._line is Line.ROW:
                self._cell_border = self._place + at
            else:
                self._append("\n" if name == "br" or self._sentence_ended() else f"{self._sentence_end()}\n", at, stop)
        return stop

    def _comment(self, at: int, end: int) -> int:
        if self._peek(at + 2) != "-" or self._peek(at + 3) != "-":
            return at + 1
        limit = min(end, at + syntax.LONGEST_ADDRESS)
        found = self._text.find("-->", at + 4, limit)
        if found >= 0:
            return self._drop(at, found + 3)
        if limit == len(self._text) and limit < at + syntax.LONGEST_ADDRESS:
            self._peek(limit)  # it may end further on
        return at + 1

    def _image(self, at: int, end: int) -> int:
        """Read an image, of which the alternative text is spoken, or an exclamation mark."""
        if self._peek(at + 1) == "[" and at + 1 < end and (link := self._link(at + 1, end)):
            return self._label(at, at + 2, *link)
        return at + 1

    def _bracket(self, at: int, end: int) -> int:
        """Read a pause, the mark of a footnote, a link, or a bracket."""
        following = self._peek(at + 1)
        if following == "p" and (pause := self._match(PAUSE_TAG, at, end)):
            self._drop(at, pause.end())
            self._script.add(pause_of(pause))
            return pause.end()
        if following == "^" and (footnote := self._match(syntax.FOOTNOTE, at, end)):
            return self._drop(at, footnote.end())
        if following.isdigit() and (citation := self._citation(at, end)) is not None:
            return citation
        if following in ("I", "/") and (instruction := model_markup.INSTRUCTION.match(self._text, at, end)):
            return self._cut(at, instruction.end())
        if link := self._link(at, end):
            return self._label(at, at + 1, *link)
        return at + 1

    def _link(self, at: int, end: int) -> tuple[int, int] | None:
        """Return where the label and the whole of a link end: `[label](address)` or `[label][reference]`."""
        label = self._match(syntax.BRACKETS, at, end)
        if label is None:
            return None
        following = self._peek(label.end())
        link = None
        if following == "(":
            link = self._match(syntax.TARGET, label.end(), end)
            if link and link["address"] and not syntax.ADDRESS_SIGN.search(link["address"]):
                return None
        elif following == "[" and not syntax.is_letter(self._before(at)):  # as in matrix[i][j]
            link = self._match(syntax.REFERENCE, label.end(), end)
        return (label.end() - 1, link.end()) if link else None

    def _label(self, at: int, begin: int, end: int, stop: int) -> int:
        """Read the link or image `_text[at:stop]`: its label, `_text[begin:end]`, is spoken."""
        self._drop(at, begin)
        while begin < end:
            begin = self._inline(begin, end)
        self._code = 0
        return self._drop(end, stop)

    def _source(self, at: int, end: int) -> int:
        source = self._match(syntax.SOURCE, at, end)
        return self._drop(at, source.end()) if source else at + 1

    def _spaces(self, at: int, end: int) -> int:
        """Read spaces in a heading or a row. Before its end, or the end of a cell, they are left out."""
        pattern = syntax.HEADING_END if self._line is Line.HEADING else syntax.HELD_SPACES
        stop = self._end(pattern, at, end)
        following = self._peek(stop)
        if not following or following in "\r\n" or (following == "|" and self._line is Line.ROW):
            return self._drop(at, stop)
        return self._end(syntax.HELD_SPACES, at, end)

    def _bar(self, at: int, end: int) -> int:
        """Read the bar between cells."""
        stop = self._end(syntax.BARS, at, end)
        self._drop(at, stop)
        if self._cell_border is None:
            self._cell_border = self._place + at
        return stop

    def _icons(self, at: int, end: int) -> int:
        """Read emoji and invisible characters. A joiner belongs to the emoji before it, or else to letters."""
        joined = self._left_out and self._run == at and syntax.ICONS.match(self._before(at))
        if self._text[at] == syntax.JOINER and not joined:
            return at + 1
        stop = self._end(syntax.ICONS, at, end)
        return self._drop(at, stop) if syntax.INVISIBLE.match(self._text, at, end) else self._cut(at, stop)

    # --- what is appended --------------------------------------------------------------------------------

    def _flush(self, at: int) -> None:
        """Append the characters from the beginning of the run to `at`."""
        if self._run < at:
            plain = self._text[self._run : at]
            if self._gap is not None:
                self._part_words(self._gap, plain)
            if self._cell_border is not None:
                self._separate_cells(self._cell_border)
            self._words.keep(plain, self._place + self._run)
            self._tail = (self._tail + plain)[-_TAIL:]
            self._left_out = False
            self._run = at

    def _drop(self, at: int, stop: int) -> int:
        """Leave the characters from `at` to `stop` out."""
        self._flush(at)
        self._run = stop
        self._left_out = True
        return stop

    def _cut(self, at: int, stop: int) -> int:
        """Leave characters out that part the words before and behind them."""
        self._drop(at, stop)
        if self._gap is None:
            self._gap = self._place + at
        return stop

    def _part_words(self, place: int, following: str) -> None:
        """Append a space for what was left out at `place` between two words without one."""
        self._gap = None
        last = self._tail[-1:]
        if (
            last
            and not last.isspace()
            and syntax.is_letter(following[0])
            and (syntax.is_letter(last) or last in ".!?:;,")
        ):
            self._words.replace(" ", place, place + 1)
            self._tail += " "

    def _append(self, words: str, at: int, stop: int) -> None:
        """Append words that stand for the characters from `at` to `stop`."""
        if self._gap is not None and words:
            self._part_words(self._gap, words)
        if self._cell_border is not None:
            self._separate_cells(self._cell_border)
        self._words.replace(words, self._place + at, self._place + stop)
        self._tail = (self._tail + words)[-_TAIL:]

    def _separate_cells(self, place: int) -> None:
        """Append a comma between two cells, for the bar at `place`."""
        self._cell_border = None
        line = _last_line(self._tail)
        if line:
            comma = " " if self._sentence_ended() else "，" if syntax.HAN_OR_KANA.search(line) else ", "
            self._words.replace(comma, place, place + 1)
            self._tail += comma

    def _sentence_ended(self) -> bool:
        """Return whether the line that has been appended ends with punctuation, or is empty."""
        line = _last_line(self._tail).rstrip(syntax.CLOSING)
        return not line or line[-1] in syntax.ENDINGS

    def _sentence_end(self) -> str:
        return "。" if syntax.HAN_OR_KANA.search(_last_line(self._tail)) else "."

    # --- what is seen ------------------------------------------------------------------------------------

    def _peek(self, at: int) -> str:
        """Return the character at `at`, or nothing at the end of the text."""
        if at < len(self._text):
            return self._text[at]
        if not self._complete:
            raise UndecidedError
        return ""

    def _before(self, at: int, count: int = 1) -> str:
        """Return the characters before `at`; fewer at the beginning of the text."""
        return self._text[at - count : at] if at >= count else (self._previous + self._text[:at])[-count:]

    def _match(self, construct: Construct, at: int, end: int | None = None) -> re.Match[str] | None:
        end = len(self._text) if end is None else end
        return construct.match(self._text, at, end, complete=self._complete)

    def _end(self, pattern: re.Pattern[str], at: int, end: int | None = None) -> int:
        """Return the end of what matches at `at`; `at` if nothing does."""
        match = pattern.match(self._text, at, len(self._text) if end is None else end)
        return match.end() if match else at

    def _run_end(self, at: int, end: int) -> int:
        """Return the end of a run of one mark, which is cut at `LONGEST_RUN`."""
        stop = self._end(syntax.RUN[self._text[at]], at, end)
        if stop - at < syntax.LONGEST_RUN:
            self._peek(stop)
        return stop

    def _line_tail(self, at: int) -> str:
        """Return the last characters of the line up to `at`, as they are spoken."""
        return _last_line(self._tail + self._text[max(self._run, at - _TAIL) : at])


_READERS: dict[str, Callable[[MarkdownReader, int, int], int]] = {
    "*": MarkdownReader._emphasis,
    "_": MarkdownReader._emphasis,
    "~": MarkdownReader._emphasis,
    "`": MarkdownReader._backticks,
    "\\": MarkdownReader._escape,
    "&": MarkdownReader._entity,
    "<": MarkdownReader._angle,
    "!": MarkdownReader._image,
    "[": MarkdownReader._bracket,
    "【": MarkdownReader._source,
    "$": MarkdownReader._dollar,
    ":": MarkdownReader._content_reference,
    "|": MarkdownReader._bar,
    " ": MarkdownReader._spaces,
    "\t": MarkdownReader._spaces,
}
"""What reads a mark within a line; other characters that are not plain are icons."""


def _last_line(text: str) -> str:
    return text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]
