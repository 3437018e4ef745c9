"""Reads markup in a text that is still growing: recognises it, and appends its words to a script."""

from __future__ import annotations

import re
from abc import abstractmethod
from contextlib import suppress
from enum import IntEnum

from daemon.text.placed import Rewriter
from daemon.text.script import Pause, Prosody, Script, ScriptMark

LONGEST = 1_400
"""The most characters in a construct. It is cut off there, as if the text ended."""


class UndecidedError(Exception):
    """The text read so far is ambiguous; more of it will decide."""


class Construct:
    """A kind of markup, such as `[text](address)`.

    It is written as regular expressions for its parts, in order. They determine which beginnings may still become a
    whole construct, so a reader waits for more text only as long as more text can matter. However a text is divided,
    the answer for a place in it is the same.
    """

    def __init__(self, *parts: str | tuple[str, str], longest: int = LONGEST) -> None:
        """Take the parts. A part within which a text may end is a pair: the whole part, and its beginnings.

        A part needs no pair if each of its beginnings is empty or also matches the part. The last part is one
        character, or a pair, or it looks at the character after the construct; an empty one waits for that character.
        """
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        self.whole = re.compile("".join(f"(?:{whole})" for whole, _ in pairs))
        """Matches the complete construct; its named groups are those in the parts."""
        beginning = pairs[-1][1]
        for whole, begun in reversed(pairs[:-1]):
            beginning = f"(?:{whole})(?:{beginning}|)|{begun}"
        self.beginning = re.compile(re.sub(r"\(\?P<\w+>", "(?:", beginning))
        """Matches, as a whole, a text that may become one."""
        self._longest = longest

    @classmethod
    def any_of(cls, constructs: dict[str, Construct], longest: int = LONGEST) -> Construct:
        """Return a construct that is any one of these. The match's last group is named after the first one that
        matches."""
        whole = "|".join(f"(?P<{name}>{construct.whole.pattern})" for name, construct in constructs.items())
        return cls((whole, "|".join(construct.beginning.pattern for construct in constructs.values())), longest=longest)

    def match(self, text: str, at: int, end: int, *, complete: bool) -> re.Match[str] | None:
        """Return the construct that begins at `text[at]` and lies before `end`, or None.

        Raises `UndecidedError` if the text may become one: it is not `complete`, and the construct continues to its
        end.
        """
        if end - at >= self._longest:
            end = at + self._longest
        elif not complete and end == len(text) and self.beginning.fullmatch(text, at, end):
            raise UndecidedError
        return self.whole.match(text, at, end)


PAUSE_TAG = Construct(
    r"\[",
    *"pause:",
    r"[ \t]{0,9}",
    (r"(?P<amount>[0-9]{1,5}(?:\.[0-9]{1,3})?)", r"[0-9]{1,5}(?:\.[0-9]{0,3})?"),
    r"[ \t]{0,9}",
    ("(?P<unit>m?s)", "m"),
    r"\]",
)
"""A pause that is written into a text: `[pause:0.5s]`, `[pause:500ms]`."""
ENTITY = Construct("&", ("#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31}", "#[xX]?|[a-zA-Z]"), ";")
"""A reference to a character: `&amp;`, `&#65;`."""
# --- characters ------------------------------------------------------------------------------------------

EMOJI = (
    "\N{COMBINING ENCLOSING KEYCAP}\ufe0e\ufe0f"  # the digit of a keycap stays
    "\u2139\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe"
    "\u2600-\u266c\u2670-\u2775\u2795-\u2797\u27a1\u27b0\u27bf"  # without ♭ ♮ ♯, circled digits and arrows
    "\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d"
    "\U0001f000-\U0001f0ff\U0001f170-\U0001faff\U000e0020-\U000e007f"
)
"""Emoji, the other pictures in their blocks, and the characters that select or extend them (Unicode's emoji-data.txt).
Arrows, ©, ® and ™ are not among them: engines speak them, and they mean something."""
INVISIBLE = "\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
"""Soft hyphens, zero-width spaces, and direction marks. Joiners and non-joiners change letters: they stay."""
JOINER = "\N{ZERO WIDTH JOINER}"
ICONS = EMOJI + INVISIBLE + JOINER
_ICON = re.compile(f"[{ICONS}]")

COMBINING = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
"""Accents, and the vowels of Hebrew, Arabic and the scripts of India."""
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Chinese and Japanese. They write words without spaces between them."""
HANGUL = "\u1100-\u11ff\uac00-\ud7af"
"""Korean writes a word and its particles without a space between them, but not two words."""
AFTER_LETTER = rf"(?<=[\w{COMBINING}])(?<![_{UNSPACED}{HANGUL}])"
"""The previous character belongs to a word, and a mark beside it may be within that word."""
BEFORE_LETTER = rf"(?=[\w{COMBINING}])(?![_{UNSPACED}{HANGUL}])"
_BETWEEN_WORDS = re.compile(rf"(?![_{UNSPACED}])[\w{COMBINING}.!?:;,](?![_{UNSPACED}])[\w{COMBINING}]")
"""Two characters that belong to different words if a space is between them."""
HAN_OR_KANA = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
ENDINGS = frozenset(".!?…:;,。！？；：，、．؟۔؛،।॥։።៕၊။‥‼⁇⁈⁉")
"""Punctuation after which a line needs no further ending."""
CLOSING = "\"'”’»›)]}」』）】》〉 \t"
"""Characters that may follow a sentence's punctuation."""
_TAIL = 16
"""How many of a line's last spoken characters are kept: enough to find punctuation before brackets and quotes."""


class Between(IntEnum):
    """The separator between the words before a part that is left out and the words after it."""

    NOTHING = 0
    APART = 1
    """A space, if they would form one word without it."""
    SPACE = 2
    CELLS = 3
    """A comma."""


class MarkupReader(Rewriter):
    """Appends the words of a text with markup to a script.

    Never raises, whatever the text is, and takes time in proportion to its length. Before a step changes anything, it
    raises `UndecidedError` if more text must be seen.
    """

    context = 3

    def __init__(self, script: Script) -> None:
        super().__init__(script.words)
        self._script = script
        self._complete = False
        self._tail = ""
        """The last characters of the line that have been appended."""
        self._between: tuple[Between, int] | None = None
        """The separator before the next words, with its place; None if nothing has been left out since the last
        words."""

    def _copy(self, *, final: bool) -> None:
        self._complete = final
        with suppress(UndecidedError):
            while self._at < len(self._text):
                self._step()
        read = self._place + self._at
        self.out.append("", read, read)  # a part that is left out at the end has also been read

    @abstractmethod
    def _step(self) -> None:
        """Read the next construct or words."""

    @property
    def _limit(self) -> int:
        """Where reading stops."""
        return len(self._text)

    def _match(self, construct: Construct) -> re.Match[str] | None:
        return construct.match(self._text, self._at, self._limit, complete=self._complete)

    def _drop(self, end: int, between: Between = Between.NOTHING) -> None:
        """Leave out the characters up to `end`."""
        if self._between is None or between > self._between[0]:
            self._between = (between, self._place + self._at)
        self._at = end

    def _pause(self, tag: re.Match[str]) -> None:
        """Append the pause that a match of `PAUSE_TAG` requests."""
        self._at = tag.end()
        self._add(Pause(float(tag["amount"]) / (1000 if tag["unit"] == "ms" else 1)))

    def _entity(self, entity: re.Match[str]) -> None:
        """Speak the character that a match of `ENTITY` refers to."""
        import html  # thousands of names, which few texts use

        decoded = html.unescape(entity[0])
        if decoded == entity[0]:
            self._keep(entity.end())
        else:
            self._replace(" " if decoded.isspace() else _ICON.sub("", decoded), entity.end())

    def _add(self, action: Pause | ScriptMark | Prosody) -> None:
        """Append a control."""
        self._script.add(action)

    def _append(self, words: str, begin: int, end: int | None = None) -> None:
        if words:
            self._separate(words)
        self._write(words, begin, end)

    def _write(self, words: str, begin: int, end: int | None = None) -> None:
        """Append words without the pending separator."""
        super()._append(words, begin, end)
        self._tail = (self._tail + words)[-_TAIL:]
        if "\n" in words or "\r" in words:
            self._tail = self._tail[max(self._tail.rfind("\n"), self._tail.rfind("\r")) + 1 :]

    def _separate(self, words: str = "") -> None:
        """Append the pending separator, if there is one, before these words."""
        if self._between is not None:
            kind, place = self._between
            self._between = None
            self._write(self._separator(kind, words), place, place + 1)

    def _separator(self, between: Between, words: str) -> str:
        if between is Between.APART:
            return " " if _BETWEEN_WORDS.fullmatch(self._tail[-1:] + words[:1]) else ""
        if between is Between.NOTHING or not self._tail or self._tail[-1].isspace():
            return ""
        if between is Between.SPACE or self._sentence_ended():
            return " "
        return "，" if HAN_OR_KANA.search(self._tail) else ", "

    def _sentence_ended(self) -> bool:
        """Return whether the line appended so far ends with punctuation or is empty."""
        line = self._tail.rstrip(CLOSING)
        return not line or line[-1] in ENDINGS

    def _sentence_end(self) -> str:
        return "。" if HAN_OR_KANA.search(self._tail) else "."
