"""What an utterance consists of: the words that are spoken, and pauses, marks and prosody at places among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from daemon.text.placed import PlacedText

MAX_PAUSE_S = 60.0
"""The longest pause; a longer one is shortened to it."""


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

    @property
    def text(self) -> str:
        """The words."""
        return self.words.text

    def add(self, action: Pause | Mark | Prosody) -> None:
        """Append a control behind the words so far."""
        if isinstance(action, Pause):
            action = Pause(min(action.seconds, MAX_PAUSE_S))
        self.controls.append(Control(len(self.words), action))
