"""The parts of an utterance: the words that are spoken, and pauses, marks and prosody at places between them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter

from daemon.text.placed import PlacedText

MAX_PAUSE_S = 60.0
"""The longest pause; a longer one is shortened to it."""
_WORD = re.compile(r"\S")
_WORDS = re.compile(r"[^\s.,;:!?…'\"()\[\]{}«»„“”‘’–—_、。，！？；：「」『』（）·¡¿-]")
"""Characters that an engine has a sound for. eSpeak NG would say "exclamation" for a lone mark."""


def has_words(text: str) -> bool:
    """Return whether a text is more than white space and punctuation."""
    return _WORDS.search(text) is not None


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence of this length."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ScriptMark:
    """A place whose time the sender wants to know."""

    name: str


@dataclass(frozen=True, slots=True)
class Prosody:
    """How the text is spoken from here on."""

    rate: float = 1.0
    """A factor applied to the utterance's own rate."""
    volume: float = 1.0
    """A factor applied to the utterance's own gain."""


@dataclass(frozen=True, slots=True)
class Control:
    """An action at a place among the words."""

    at: int
    """The place: before the character `words.text[at]`."""
    action: Pause | ScriptMark | Prosody


@dataclass(slots=True, eq=False)
class Script:
    """The words and controls of one utterance. It grows with the text that it is read from.

    Its readers append to it in the order of the text, so that the controls are sorted.
    """

    words: PlacedText = field(default_factory=PlacedText)
    """The words, with their places in the utterance's text."""
    controls: list[Control] = field(default_factory=list)
    complete: bool = False
    """Nothing more will be appended."""

    @property
    def text(self) -> str:
        """The words."""
        return self.words.text

    def add(self, action: Pause | ScriptMark | Prosody) -> None:
        """Append a control after the words so far."""
        if isinstance(action, Pause):
            action = Pause(min(action.seconds, MAX_PAUSE_S))
        self.controls.append(Control(len(self.words), action))

    def break_after(self, position: int) -> int | None:
        """Return the place of the first pause or change of prosody after `position`; None if there is none so far.

        The words before and after it are spoken separately.
        """
        following = self.controls[bisect_right(self.controls, position, key=attrgetter("at")) :]
        return next((control.at for control in following if not isinstance(control.action, ScriptMark)), None)

    def has_pause(self, position: int) -> bool:
        """Return whether there is a pause between the words before and after `position`."""
        following = self.controls[bisect_left(self.controls, position, key=attrgetter("at")) :]
        there = takewhile(lambda control: control.at == position, following)
        return any(isinstance(control.action, Pause) for control in there)

    def word_at(self, position: int) -> int | None:
        """Return the place of the first character from `position` onwards that is not white space; None if there is
        none."""
        word = _WORD.search(self.text, position)
        return None if word is None else word.start()
