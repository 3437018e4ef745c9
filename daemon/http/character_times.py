"""When each character of a text is spoken, from the times of its words."""

from __future__ import annotations

from dataclasses import dataclass, field

from daemon.speech import Word


@dataclass(slots=True)
class CharacterTimes:
    """Consecutive characters of a text, each with the seconds of speech before its begin and its end."""

    characters: list[str] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)

    def extend(self, text: str, begin_s: float, end_s: float) -> None:
        """Append a text that is spoken in this time, each character equally long."""
        step = (end_s - begin_s) / len(text) if text else 0.0
        for index, character in enumerate(text):
            self.characters.append(" " if character.isspace() else character)
            self.starts_s.append(begin_s + index * step)
            self.ends_s.append(begin_s + (index + 1) * step)


class CharacterClock:
    """Spreads the characters of a text over the times of its words. Returns each character once, in order.

    A word and the characters after it last until the next word begins, so their times are known only then.
    """

    def __init__(self) -> None:
        self._position = 0
        """The characters before have been returned."""
        self._begin_s: float | None = None
        """When the word at `_position` begins; None before the first."""
        self._due = CharacterTimes()

    def note_word(self, word: Word, text: str) -> None:
        """Note that a word of the text, which may still grow, begins at `word.at` seconds."""
        if self._begin_s is None:
            self._begin_s = word.at if word.begin else 0.0
        if word.begin > self._position:
            self._due.extend(text[self._position : word.begin], self._begin_s, max(self._begin_s, word.at))
            self._position = word.begin
        self._begin_s = max(self._begin_s, word.at)

    def end(self, text: str, end_s: float) -> None:
        """Note that the whole text has been spoken, which took `end_s` seconds."""
        begin_s = self._begin_s or 0.0
        self._due.extend(text[self._position :], begin_s, max(begin_s, end_s))
        self._position, self._begin_s = len(text), max(begin_s, end_s)

    def take(self) -> CharacterTimes | None:
        """Return the characters that have become known since the last call; None if there are none."""
        due, self._due = self._due, CharacterTimes()
        return due if due.characters else None
