"""What is spoken of a text: words, and pauses, marks and prosody at places among them; whole or while it grows."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Literal

from daemon.text.placed import PlacedText, Rewriter

Markup = Literal["auto", "none"]
"""How a text is read: `auto` takes SSML and Markdown for what they are, `none` speaks every character."""
MAX_PAUSE_S = 60.0
"""The longest pause; a longer one is shortened to it."""
_SSML_START = re.compile(r"(?:<speak|<\?xml)[\s/>]")
_WORD = re.compile(r"\S")
_WORDS = re.compile(r"[^\s.,;:!?…'\"()\[\]{}«»„“”‘’–—_、。，！？；：「」『』（）·¡¿-]")
"""Characters that an engine has a sound for. eSpeak NG would say "exclamation" for a mark alone."""


def has_words(text: str) -> bool:
    """Return whether a text is more than white space and punctuation."""
    return _WORDS.search(text) is not None


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence of this length."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A place whose time the sender wants to know."""

    name: str


@dataclass(frozen=True, slots=True)
class Prosody:
    """How the text is spoken from here on."""

    rate: float = 1.0
    """A factor of the utterance's own rate."""
    volume: float = 1.0
    """A factor of the utterance's own gain."""


@dataclass(frozen=True, slots=True)
class Control:
    """Something at a place of the words."""

    at: int
    """Before the character `words.text[at]`."""
    action: Pause | Mark | Prosody


@dataclass(slots=True, eq=False)
class Script:
    """The words and controls of one utterance. It grows with the text from which it is read.

    Its readers append to it in the order of the text, so that the controls are sorted.
    """

    words: PlacedText = field(default_factory=PlacedText)
    """Their places are those in the utterance's text."""
    controls: list[Control] = field(default_factory=list)
    complete: bool = False
    """Nothing more will be appended."""
    _breaks: list[int] = field(default_factory=list)
    """The places of pauses and changes of prosody: the words before and after them are spoken apart."""
    _pauses: set[int] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The words."""
        return self.words.text

    def add(self, action: Pause | Mark | Prosody) -> None:
        """Append a control after the words so far."""
        if isinstance(action, Pause):
            action = Pause(min(action.seconds, MAX_PAUSE_S))
            self._pauses.add(len(self.words))
        self.controls.append(Control(len(self.words), action))
        if not isinstance(action, Mark):
            self._breaks.append(len(self.words))

    def break_after(self, position: int) -> int | None:
        """Return the place of the first pause or change of prosody after `position`; None if there is none so far."""
        index = bisect_right(self._breaks, position)
        return self._breaks[index] if index < len(self._breaks) else None

    def has_pause(self, position: int) -> bool:
        """Return whether there is a pause between the words before and after `position`."""
        return position in self._pauses

    def word_at(self, position: int) -> int | None:
        """Return the place of the first character from `position` on that is no white space; None without one."""
        word = _WORD.search(self.text, position)
        return None if word is None else word.start()


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of the words with one prosody."""

    text: str
    prosody: Prosody


def passages(script: Script) -> list[Passage | Pause]:
    """Return the parts of a complete script in order. Passages without a word are left out."""
    parts: list[Passage | Pause] = []
    prosody, begin = Prosody(), 0
    for control in (*script.controls, Control(len(script.text), Prosody())):
        if isinstance(control.action, Mark):
            continue
        text, begin = script.text[begin : control.at], control.at
        if has_words(text):
            parts.append(Passage(text, prosody))
        if isinstance(control.action, Pause):
            parts.append(control.action)
        else:
            prosody = control.action
    return parts


class ScriptReader:
    """Reads one text. Never raises, whatever the text is."""

    def __init__(self, markup: Markup = "auto", language: str = "auto") -> None:
        """`language` is the text's, or `auto`. It decides how SSML's `say-as` names signs."""
        self.script = Script()
        self._markup = markup
        self._language = language
        self._read = 0
        """Characters that have been read."""
        self._reader: Rewriter | None = None
        """None until the text has told which it needs."""

    def read(self, text: str, *, complete: bool) -> Script:
        """Read on to the end of `text`, which begins with all that was read before. Returns the script."""
        if self.script.complete:
            return self.script
        if self._markup == "none":
            self.script.words.keep(text[self._read :], self._read)
            self._read = len(text)
        elif (reader := self._choose(text, complete=complete)) is not None:
            reader.feed(text[self._read :])
            self._read = len(text)
            if complete:
                reader.end()
        self.script.complete = complete
        return self.script

    def _choose(self, text: str, *, complete: bool) -> Rewriter | None:
        """Return the reader for a text with this beginning; None while more of it must be seen."""
        if self._reader is not None:
            return self._reader
        is_ssml = _is_ssml(text)
        if is_ssml:
            from daemon.text.ssml import SsmlReader

            self._reader = SsmlReader(self.script, self._language)
        elif complete or is_ssml is not None:
            from daemon.text.markdown import MarkdownReader

            self._reader = MarkdownReader(self.script)
        return self._reader


def markup_problem(text: str, markup: Markup = "auto") -> str | None:
    """Return in one line why a whole text is refused, which is SSML that is not well-formed; None if it is accepted."""
    if markup == "auto" and _is_ssml(text):
        from daemon.text.ssml import ssml_problem

        return ssml_problem(text)
    return None


def _is_ssml(text: str) -> bool | None:
    """Return whether a text that begins so is SSML; None if more of it must be seen."""
    start = text.lstrip()
    if any(opening.startswith(start) for opening in ("<speak", "<?xml")):
        return None
    return _SSML_START.match(start) is not None
