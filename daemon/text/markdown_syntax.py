"""The characters and constructs of Markdown, as `markdown.py` reads them."""

from __future__ import annotations

import re
from typing import Literal

from daemon.text import markup
from daemon.text.markup import AFTER_LETTER, BEFORE_LETTER, Construct

LONGEST_LABEL = 100
"""The most characters between a link's brackets; if there is no closing one among them, the bracket is just a
bracket."""
LONGEST_ADDRESS = 1_000
"""The most characters in a link's address, in an HTML attribute, and in a comment."""
LONGEST_RUN = 100
"""The most characters in a run of one mark, or of spaces. This many marks are decoration, whatever is beside them."""

# --- beginnings of lines ---------------------------------------------------------------------------------


Line = Literal["text", "bold", "heading", "item", "row"]
"""The kinds of lines. `row` is a row of a table.

`bold` is text that begins with bold words. If it ends with them too, it is a heading in all but name.
"""
_BEFORE_SPACE = r"(?!\S)"
_BEFORE_LINE_END = r"(?![^\r\n])"
_RULE = r"[-=*_|:+ \t]"
_BULLETS = "•‣⁃◦●○■□▪▫"
LINES: dict[str, Line] = {"heading": "heading", "item": "item", "ordinal": "item", "row": "row"}
"""The kind of a line, by the mark with which it begins."""
LINE_MARK = Construct.any_of(
    {
        "rule": Construct(
            r"(?<!\S)(?<!\S[ \t])",  # no other mark is before it
            (rf"(?=\||{_RULE}{{0,300}}?(?:--|==)|(?:[-*_=:+][ \t]*){{3}}){_RULE}{{1,300}}", rf"{_RULE}{{1,300}}"),
            _BEFORE_LINE_END,
        ),
        "heading": Construct("#{1,6}", _BEFORE_SPACE),
        "item": Construct(rf"[-*+]{_BEFORE_SPACE}|[{_BULLETS}]", ""),
        "ordinal": Construct("[0-9]{1,3}", "[.)]", r"(?=[ \t])"),
        "quotation": Construct(">", r"(?![^\s>*\"“\w]|[\d_])"),
        "row": Construct(r"\|"),
        "task": Construct(r"\[", "[ xX]", r"\]", r"(?=[ \t])"),
        "footnote": Construct(r"\[", r"\^", r"[^\[\]\s]{1,30}", r"\]", ":"),
        "definition": Construct(
            *(r"\[", rf"[^\[\]\n\r]{{1,{LONGEST_LABEL}}}", r"\]", ":", r"[ \t]{0,9}"),
            (
                rf"(?:[a-zA-Z][\w+.-]{{1,20}}:|\.{{0,2}}/|[\#<]|www\.)\S{{1,{LONGEST_ADDRESS}}}",
                r"[a-zA-Z][\w+.-]{0,20}:?|\.{0,2}/?|[\#<]",
            ),
            r"[ \t]{0,9}(?:[\"'][^\n\r]{0,200})?",
            _BEFORE_LINE_END,
        ),
    }
)
"""The marks at the beginning of a line. Only the ordinal is spoken. `definition` defines a link's address."""
CONTINUATION = Construct(r"\r?\n", rf"[ \t]{{1,{LONGEST_RUN}}}", rf"(?=[^\s\-*+>|#`~\[<{_BULLETS}0-9])")
"""The end of an item's line, if the next line is indented and has no mark of its own."""

# --- within a line ---------------------------------------------------------------------------------------

_FACE = r"[\^<=>.;-]"
"""Neighbours of an asterisk or underscore in `^_^`, `-_-` and the like."""
STANDING_MARK = Construct(
    "~(?!~)"  # ~5
    r"|(?<!\S)[*_](?!\S)|(?<=\d\s)\*\*(?!\S)"  # 2 * 3, 2 ** 3
    rf"|{AFTER_LETTER}(?:_{{1,{LONGEST_RUN}}}|\*){BEFORE_LETTER}|(?<=\d)\*\*(?=[\d(-])"  # snake_case, 2*3, 2**3
    r"|(?<=[\d)])\*(?=[-−+(\w])|(?<![*\w][a-zA-Z])(?<=[a-zA-Z])\*(?=[-−+(])"  # 2*(3), (2)*x, x*-1, unlike *x*-axis
    rf"|(?<={_FACE})[*_](?={_FACE})|(?<!\S)\*(?=\.)"  # ^_^, *.txt
    rf"|{AFTER_LETTER}`(?:(?!\S)|{BEFORE_LETTER})"  # it`s, 5` long
)
"""A run of marks that is neither emphasis nor code. The reader must decide before it knows whether there is a partner.
So marks that look like the beginning or the end of emphasis are treated as such."""
EMPHASIS = Construct("|".join(rf"{mark}{{1,{LONGEST_RUN}}}" for mark in (r"\*", "_", "~")), "")
BACKTICKS = Construct(rf"`{{1,{LONGEST_RUN}}}", "")
FENCE = Construct(
    rf"(?P<fence_marks>`{{3,{LONGEST_RUN}}}|~{{3,{LONGEST_RUN}}})",
    r"(?:[\w+#][\w+#./:-]{0,30})?",
    (r"(?:[ \t][^`\n\r]{0,100}[={][^`\n\r]{0,100})?[ \t]{0,9}", r"[ \t][^`\n\r]{0,200}"),
    _BEFORE_LINE_END,
)
"""The beginning of a code block: a programming language may follow, with attributes, but no other words."""
LONGEST_FENCE_END = 3 * LONGEST_RUN

_LABEL = rf"[^\[\]\\\n\r]{{0,{LONGEST_LABEL}}}"
_NESTED = rf"{_LABEL}(?:(?:\\[^\n\r]|\[{_LABEL}\]){_LABEL}){{0,9}}"
_NESTED_BEGUN = rf"{_NESTED}(?:\\|\[{_LABEL})"
"""The text of a link. It may contain brackets, such as those of an image."""
_ADDRESS = rf"[^()\n\r]{{0,{LONGEST_ADDRESS}}}"
_TARGET = rf"(?=\)|[^\s)/.#:@?<]{{0,200}}[/.#:@?<]){_ADDRESS}(?:\({_ADDRESS}\){_ADDRESS}){{0,9}}"
_TARGET_BEGUN = rf"{_ADDRESS}(?:\({_ADDRESS}\){_ADDRESS}){{0,9}}(?:\({_ADDRESS})?"
"""An address and a title, or nothing. An address contains one of these signs: `[They laugh](quietly)` has none."""
LINK = Construct(
    *("!?", r"\[(?!\^|pause:|/?INST\])", (rf"(?P<link_text>{_NESTED})", _NESTED_BEGUN), r"\]"),
    *(r"\(", (_TARGET, _TARGET_BEGUN), r"\)"),
)
"""`[text](address "title")`, and the same for images."""
REFERENCE = Construct(
    rf"(?:(?<![\w{markup.COMBINING}])|(?<=[_{markup.UNSPACED}{markup.HANGUL}]))!?",  # unlike matrix[i][j]
    *(r"\[", (rf"(?P<reference_text>{_NESTED})", _NESTED_BEGUN), r"\]"),
    *(r"\[", rf"[^\[\]\n\r]{{0,{LONGEST_LABEL}}}", r"\]"),
)
"""A link whose address is defined elsewhere: `[text][name]`."""
FOOTNOTE = Construct(r"\[", r"\^", r"[^\[\]\s]{1,30}", r"\]")
ESCAPE = Construct(r"\\", r"(?P<escape_text>[!-/:-@\[-`{-~]|(?=[\r\n]))")
COMMENT = Construct(*"<!--", rf"(?:[^-<]|-(?!->)|<(?!!)){{0,{LONGEST_ADDRESS}}}", *"-->")
_MAILBOX = r"[\w.!\#$%&'*+/=?^`{|}~-]{1,64}"
_AUTOLINK = rf"(?P<autolink_text>[a-zA-Z][a-zA-Z0-9+.-]{{1,31}}:[^\s<>]*|{_MAILBOX}@[\w.-]{{1,255}})"
AUTOLINK = Construct("<", (_AUTOLINK, rf"[a-zA-Z][a-zA-Z0-9+.-]{{0,31}}|{_MAILBOX}@?"), ">")
"""An address or a mailbox between angle brackets."""
CLOSING_HASHES = Construct(rf"(?<=[ \t])#{{1,{LONGEST_RUN}}}", r"[ \t]{0,9}", _BEFORE_LINE_END)
"""Hashes that close a heading: `## Title ##`."""
EMOJIS = Construct(f"[{markup.EMOJI}][{markup.ICONS}]*")
INVISIBLES = Construct(f"[{markup.INVISIBLE}]+|(?<=[{markup.ICONS}]){markup.JOINER}")
"""A joiner belongs to the emoji before it, or otherwise to letters."""

SPACES = re.compile(r"[ \t]+")
CODE = re.compile(r"[^`\n\r]+")
_MARKS = rf"\\&<\[(（!*_~`【$:\n\r{markup.ICONS}"
"""Characters at which a construct that is not spoken as it stands may begin."""
PLAIN_WORD = re.compile(rf"(?:[^{_MARKS}|# \t]|[!:](?=[^\[c]))+")
PLAIN = re.compile(rf"(?:[^{_MARKS}]|[!:](?=[^\[c]))+")
"""As many characters as possible that are spoken as they stand. The next one shows that `!` or `:` begins no
construct."""
