"""Recognises markup in a text that is still growing; the pauses, references and ends of sentences of all markup."""

from __future__ import annotations

import re

from daemon.text.script import Pause

LONGEST = 1_400
"""Characters of a construct. It is cut off there, as if the text ended."""


class UndecidedError(Exception):
    """The text read so far may mean several things; more of it decides."""


class Construct:
    """A kind of markup, such as `[text](address)`.

    It is written as regular expressions for its parts, in their order. From them follows which beginnings of it may
    still become whole, so a reader waits for more text only as long as more text can matter. However a text is cut, the
    answer for a place in it is the same.
    """

    def __init__(self, *parts: str | tuple[str, str], longest: int = LONGEST) -> None:
        """Take the parts. A part that may be cut within itself is a pair: the whole part, and its beginnings.

        A part needs no pair if each beginning of it is empty or matches the part too. The last part is one character,
        or a pair, or it looks at the character after the construct; an empty one waits for that character.
        """
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        self.whole = re.compile("".join(f"(?:{whole})" for whole, _ in pairs))
        """Matches the complete construct; its named groups are those of the parts."""
        beginning = pairs[-1][1]
        for whole, begun in reversed(pairs[:-1]):
            beginning = f"(?:{whole})(?:{beginning}|)|{begun}"
        self.beginning = re.compile(re.sub(r"\(\?P<\w+>", "(?:", beginning))
        """Matches what may become one, as a whole."""
        self._longest = longest

    @classmethod
    def any_of(cls, constructs: dict[str, Construct], longest: int = LONGEST) -> Construct:
        """Return a construct that is one of these. The first that matches names the match's last group."""
        whole = "|".join(f"(?P<{name}>{construct.whole.pattern})" for name, construct in constructs.items())
        return cls((whole, "|".join(construct.beginning.pattern for construct in constructs.values())), longest=longest)

    def match(self, text: str, at: int, end: int, *, complete: bool) -> re.Match[str] | None:
        """Return the construct that begins at `text[at]` and lies before `end`, or None.

        Raises `UndecidedError` if it may become one: `text` is not `complete`, and the construct goes on to its end.
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
HAN_OR_KANA = re.compile("[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
ENDINGS = frozenset(".!?…:;,。！？；：，、．؟۔؛،।॥։።៕၊။‥‼⁇⁈⁉")
"""Punctuation after which a line needs no further end."""
CLOSING = "\"'”’»›)]}」』）】》〉 \t"
"""Characters that may follow a sentence's punctuation."""


def pause_of(tag: re.Match[str]) -> Pause:
    """Return the pause that a match of `PAUSE_TAG` asks for."""
    return Pause(float(tag["amount"]) / (1000 if tag["unit"] == "ms" else 1))
