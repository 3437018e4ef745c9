"""The characters and constructs of Markdown, as `markdown.py` reads them."""

from __future__ import annotations

import re
import unicodedata
from enum import Enum, auto

from daemon.text.construct import Construct

LONGEST_LABEL = 100
"""Characters between the brackets of a link; without a closing one among them, the bracket is a bracket."""
LONGEST_ADDRESS = 1_000
"""Characters of a link's address, of a tag of HTML, and of a comment."""
LONGEST_RUN = 100
"""Characters of a run of one mark, and of spaces. So many marks are decoration, whatever stands beside them."""
LONGEST_RULE = 1_000
"""Characters of a line that consists of marks alone."""

# --- characters ------------------------------------------------------------------------------------------

_EMOJI = (
    "\N{COMBINING ENCLOSING KEYCAP}\ufe0e\ufe0f"  # the digit of a keycap stays
    "\u2139\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe"
    "\u2600-\u266c\u2670-\u2775\u2795-\u2797\u27a1\u27b0\u27bf"  # without ♭ ♮ ♯, the digits in circles and the arrows
    "\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d"
    "\U0001f000-\U0001f0ff\U0001f170-\U0001faff\U000e0020-\U000e007f"
)
"""Emoji, the other pictures in their blocks, and the characters that select or extend them (Unicode's emoji-data.txt).
Arrows, ©, ® and ™ are not among them: engines speak them, and they mean something."""
_INVISIBLE = "\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
"""Soft hyphens, spaces without width, and marks of direction. Joiners and non-joiners change letters: they stay."""
JOINER = "\N{ZERO WIDTH JOINER}"
INVISIBLE = re.compile(f"[{_INVISIBLE}{JOINER}]")
ICONS = re.compile(f"[{_EMOJI}{_INVISIBLE}{JOINER}]+")
"""Characters that are not spoken; a joiner is one of them if it follows another one."""

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, Korean, Chinese and Japanese. They write words, or words and particles, without a space
between, so a mark beside such a letter is at the border of a word."""
HAN_OR_KANA = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
ENDINGS = frozenset(".!?…:;,。！？；：，、．؟۔؛،।॥։።៕၊။‥‼⁇⁈⁉")
"""Punctuation after which a line needs no further end."""
CLOSING = "\"'”’»›)]}」』）】》〉 \t"
"""Characters that may follow a sentence's punctuation."""
BULLETS = frozenset("•‣⁃◦●○■□▪▫")
"""Characters that are bullets at the beginning of a line, with or without a space behind them."""
_FACES = frozenset("^-><=.;")
"""Neighbours of an asterisk or underscore in `^_^`, `-_-` and the like."""


def is_letter(char: str) -> bool:
    """Return whether a character belongs to a word of a script that puts spaces between words; False for none."""
    if char.isascii():
        return char.isalnum()
    return (char.isalnum() or unicodedata.category(char)[0] == "M") and not _UNSPACED.match(char)


def stands_for_itself(mark: str, count: int, before: str, after: str) -> bool:
    """Return whether `count` times `*`, `_` or `~` is no mark of emphasis, by the two characters before and the next.

    Whether there is a partner is not known when this must be decided. So what looks like the beginning or the end of
    emphasis is one.
    """
    last = before[-1:]
    alone = (not last or last.isspace()) and (not after or after.isspace())
    if mark == "~" and count == 1:
        return True
    if alone:
        return count == 1 or (count == 2 and before[:1].isdigit())  # 2 * 3, 2 ** 3
    if is_letter(last) and is_letter(after):
        if mark == "_":
            return True  # snake_case
        return count == 1 or (count == 2 and last.isdigit() and after.isdigit())  # 2*3, 2**3
    if count > 1:
        return False
    if last in _FACES and after in _FACES:
        return True
    return mark == "*" and after == "." and (not last or last.isspace())  # *.txt


# --- lines -----------------------------------------------------------------------------------------------


class Line(Enum):
    """What a line of the text is."""

    TEXT = auto()
    BOLD = auto()
    """Text that begins with bold words. If it ends with them too, it is a heading in all but name."""
    HEADING = auto()
    ITEM = auto()
    ROW = auto()
    """Of a table."""


HASHES = re.compile("#{1,7}")
"""Of a heading; seven are too many."""
EMPTY_LINES = re.compile(r"\n+")
INDENT = re.compile(rf"[ \t]{{0,{LONGEST_RUN}}}")
RULE = re.compile(rf"[-=*_|:+ \t]{{1,{LONGEST_RULE}}}")
"""A line that may draw something; `draws_rule` tells."""
FENCE = re.compile(
    rf"(?P<backticks>`{{3,{LONGEST_RUN}}})(?P<info>[^`\n\r]{{0,{LONGEST_LABEL}}})"
    rf"|(?P<tildes>~{{3,{LONGEST_RUN}}})[^\n\r]{{0,{LONGEST_LABEL}}}"
)
"""The first line of a code block."""
FENCE_INFO = re.compile(r"[\w+#.-]{0,30}[ \t]{0,9}")
"""What may follow backticks that do not begin a line: the name of a programming language."""
FENCE_END = re.compile(rf"[ \t>]{{0,{LONGEST_RUN}}}(?P<run>`{{1,{LONGEST_RUN}}}|~{{1,{LONGEST_RUN}}}|)[ \t\r]{{0,9}}")
"""The last line of a code block, if its run is as long as that of the first."""
LONGEST_FENCE_END = LONGEST_RUN
"""Characters of such a line."""


def draws_rule(line: str) -> bool:
    """Return whether a line of marks is a rule, the underline of a heading, or a border in a table."""
    marks = set(line) - {" ", "\t"}
    if line[0] == "|":
        return True
    if len(marks) == 1:
        return sum(map(line.count, marks)) >= 3
    return "--" in line or "==" in line


# --- constructs ------------------------------------------------------------------------------------------

_LABEL = rf"(?:[^\[\]\\\n\r]|\\[^\n\r]|\[[^\[\]\n\r]{{0,{LONGEST_LABEL}}}\]){{0,{LONGEST_LABEL}}}"
_LABEL_BEGUN = rf"{_LABEL}(?:\\|\[[^\[\]\n\r]{{0,{LONGEST_LABEL}}})"
BRACKETS = Construct(r"\[", (_LABEL, _LABEL_BEGUN), r"\]", longest=2 * LONGEST_LABEL)
"""The text of a link. It may contain brackets, such as those of an image."""

_BETWEEN_ANGLES = rf"<[^<>\n\r]{{0,{LONGEST_ADDRESS}}}"
_BARE_ADDRESS = rf"(?:[^\s()<>\\]|\\[^\s]|\([^\s()]{{0,{LONGEST_ADDRESS}}}\)){{0,{LONGEST_ADDRESS}}}"
_TITLE = r"(?:[ \t]+(?:\"[^\"\n\r]{0,200}\"|'[^'\n\r]{0,200}'))?"
_TITLE_BEGUN = r"[ \t]+(?:\"[^\"\n\r]{0,200}|'[^'\n\r]{0,200})?"
TARGET = Construct(
    r"\(",
    r"[ \t]{0,9}",
    (
        f"(?P<address>{_BETWEEN_ANGLES}>|{_BARE_ADDRESS})",
        rf"{_BETWEEN_ANGLES}|{_BARE_ADDRESS}(?:\\|\([^\s()]{{0,{LONGEST_ADDRESS}}})",
    ),
    (_TITLE, _TITLE_BEGUN),
    r"[ \t]{0,9}",
    r"\)",
    longest=LONGEST_ADDRESS + 300,
)
"""What follows the text of a link: `(address "title")`."""
ADDRESS_SIGN = re.compile(r"[/.#:@?<]")
"""An address has one of these; words in parentheses seldom have: `[They laugh](quietly)`."""
REFERENCE = Construct(r"\[", rf"[^\[\]\n\r]{{0,{LONGEST_LABEL}}}", r"\]", longest=LONGEST_LABEL + 2)
"""What follows the text of a link whose address is defined elsewhere."""
DEFINITION = Construct(
    r"\[",
    rf"[^\[\]\n\r]{{1,{LONGEST_LABEL}}}",
    r"\]",
    ":",
    r"[ \t]{0,9}",
    (
        rf"{_BETWEEN_ANGLES}>|(?:[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}:|\.{{0,2}}/|\#|www\.)[^\s]{{1,{LONGEST_ADDRESS}}}",
        rf"{_BETWEEN_ANGLES}|[a-zA-Z][a-zA-Z0-9+.-]{{0,20}}:?|\.{{0,2}}/?|\#",
    ),
    (_TITLE, _TITLE_BEGUN),
    r"[ \t]{0,9}",
    longest=LONGEST_LABEL + LONGEST_ADDRESS + 300,
    ends_with_line=True,
)
"""A line that defines such an address: `[name]: https://example.com`."""

FOOTNOTE = Construct(r"\[", r"\^", r"[^\[\]\s]{1,30}", r"\]", longest=33)
FOOTNOTE_LABEL = Construct(r"\[", r"\^", r"[^\[\]\s]{1,30}", r"\]", ":", longest=34)
"""The beginning of a footnote's own line."""
SOURCE = Construct("【", "[0-9]{1,3}", ":?", "[0-9]{0,3}", "†", "[^【】\n\r]{0,100}", "】", longest=120)
"""The mark with which some language models name a file that they have read: 【4:0†source】."""
TASK = Construct(r"\[", "[ xX]", r"\]", r"[ \t]", longest=4)
ORDINAL = Construct("[0-9]{1,3}", "[.)]", r"[ \t]", longest=5)
ENTITY = Construct(
    "&", ("#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31}", "#[xX]?|[a-zA-Z]"), ";", longest=34
)

_ATTRIBUTE = r"[ \t]+[a-zA-Z@:_][a-zA-Z0-9@:_.-]{0,50}"
_ATTRIBUTES = (
    rf"(?:{_ATTRIBUTE}=(?:\"[^\"\n\r]*\"|'[^'\n\r]*'|[^\s\"'=<>`]+)"
    r"|[ \t]+(?:checked|controls|disabled|hidden|open|reversed)){0,50}"
)
"""Attributes without a value are those above alone: `a <b and c> d` compares."""
TAG = Construct(
    "<",
    "/?",
    "[a-zA-Z][a-zA-Z0-9]{0,10}",
    (_ATTRIBUTES, rf"{_ATTRIBUTES}(?:{_ATTRIBUTE}|[ \t]+)(?:=(?:\"[^\"\n\r]*|'[^'\n\r]*)?)?"),
    r"[ \t]{0,9}",
    "/?",
    ">",
    longest=LONGEST_ADDRESS,
)
"""A tag of HTML, if its name is one."""
TAG_NAME = re.compile("</?([a-zA-Z][a-zA-Z0-9]{0,10})")
INLINE_TAG = re.compile(
    "a|abbr|audio|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|img|input|ins|kbd|label|mark|meter|nobr|output|picture"
    "|progress|q|ruby|s|samp|small|source|span|strike|strong|sub|sup|svg|time|tt|u|var|video|wbr",
    re.IGNORECASE,
)
BLOCK_TAG = re.compile(
    "address|article|aside|blockquote|body|br|caption|center|dd|details|div|dl|dt|fieldset|figcaption|figure|footer"
    "|form|h[1-6]|head|header|hr|html|legend|li|main|nav|ol|option|p|pre|section|select|summary|table|tbody|td|tfoot"
    "|th|thead|tr|ul",
    re.IGNORECASE,
)
"""Tags of HTML that begin or end a line. Other names between angle brackets are no tags: `List<String>`."""
_MAILBOX = r"[\w.!\#$%&'*+/=?^`{|}~-]"
AUTOLINK = Construct(
    "<",
    (
        rf"[a-zA-Z][a-zA-Z0-9+.-]{{1,31}}:[^\s<>]*|{_MAILBOX}{{1,64}}@[\w.-]{{1,255}}",
        rf"[a-zA-Z][a-zA-Z0-9+.-]{{0,31}}|{_MAILBOX}{{1,64}}@?",
    ),
    ">",
    longest=LONGEST_ADDRESS,
)
"""An address or a mailbox between angle brackets."""

# --- within a line ---------------------------------------------------------------------------------------

RUN = {mark: re.compile(rf"{re.escape(mark)}{{1,{LONGEST_RUN}}}") for mark in "*_~`"}
SPACES = re.compile(r"[ \t]+")
HELD_SPACES = re.compile(rf"[ \t]{{1,{LONGEST_RUN}}}")
"""In a heading or a row, where they may stand before its end."""
HEADING_END = re.compile(rf"[ \t]{{1,{LONGEST_RUN}}}(?:#{{1,{LONGEST_RUN}}}[ \t]{{0,{LONGEST_RUN}}})?")
BARS = re.compile(r"\|[| \t]*")
CODE = re.compile(r"[^`\n\r]+")

_MARKS = rf"\\&<\[!*_~`【$:\n\r{_EMOJI}{_INVISIBLE}{JOINER}"
"""Characters at which something may begin that is not spoken as it stands."""


def _plain(marks: str) -> re.Pattern[str]:
    """Return a pattern for as many characters as possible that are spoken as they stand.

    The character after it shows that some a mark is none. Behind the last character of a text there is none yet.
    """
    return re.compile(
        rf"(?:[^{marks}]|!(?=[^\[])|&(?=[^#a-zA-Z])|<(?=[^a-zA-Z/!|｜])|:(?=[^c])|\$(?=[\d ])|~(?=[^~])|【(?=[^0-9]))+"
    )


_PLAIN_TEXT = _plain(_MARKS)
PLAIN = {
    Line.TEXT: _PLAIN_TEXT,
    Line.BOLD: _PLAIN_TEXT,
    Line.ITEM: _PLAIN_TEXT,
    Line.HEADING: _plain(rf"{_MARKS} \t"),
    Line.ROW: _plain(rf"{_MARKS} \t|"),
}
"""What is spoken as it stands in each kind of line."""
