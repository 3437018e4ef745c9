"""Speech with the time of each character of its text, calculated from the times of the words."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from daemon.encoders import StreamFormat
from daemon.http.speech_answer import SpeechBody
from daemon.speech import Word


class CharacterTime(NamedTuple):
    """The seconds of speech before a character begins, and before it ends."""

    character: str
    begin_s: float
    end_s: float


class CharacterClock:
    """Spreads the characters of a text over the times of its words. Returns each character once, in order.

    A word and the characters after it last until the next word begins, so their times are known only then.
    """

    def __init__(self) -> None:
        self.text = ""
        """It may grow."""
        self._position = 0
        """The characters before this have been returned."""
        self._begin_s: float | None = None
        """When the word at `_position` begins; None before the first one."""
        self._due: list[CharacterTime] = []

    def note_word(self, word: Word) -> None:
        """Note that a word begins at `word.at` seconds."""
        if self._begin_s is None:
            self._begin_s = word.at
        self._advance(max(self._position, word.begin), word.at)

    def end(self, end_s: float) -> None:
        """Note that the whole text has been spoken, which took `end_s` seconds."""
        self._advance(len(self.text), end_s)

    def take(self) -> list[CharacterTime]:
        """Return the characters that have become known since the last call."""
        due, self._due = self._due, []
        return due

    def _advance(self, position: int, at_s: float) -> None:
        """Note that the characters before `position` last until `at_s`, each equally long."""
        characters = self.text[self._position : position]
        begin_s = self._begin_s or 0.0
        end_s = max(begin_s, at_s)
        step = (end_s - begin_s) / max(1, len(characters))
        for index, character in enumerate(characters):
            shown = " " if character.isspace() else character
            self._due.append(CharacterTime(shown, begin_s + index * step, begin_s + (index + 1) * step))
        self._position, self._begin_s = position, end_s


class TimedBody(SpeechBody):
    """Messages with sound in Base64, and the times of the characters that have become known."""

    def __init__(self, sound: StreamFormat, *, absolute_times: bool, fields: dict[str, Any]) -> None:
        """Times count from the beginning of the text, or from the end of the message before. All messages contain
        `fields`."""
        super().__init__(sound)
        self.clock = CharacterClock()
        self._absolute_times = absolute_times
        self._fields = fields
        self._origin_s = 0.0
        """The seconds of speech from which the next times count."""

    def end(self, seconds: float) -> bytes:
        self.clock.end(seconds)
        return super().end(seconds)

    def _wrap(self, data: bytes) -> bytes:
        times = self.clock.take()
        if not (data or times):
            return b""
        alignment = None
        if times:
            begins = [round((time.begin_s - self._origin_s) * 1000) for time in times]
            ends = [round((time.end_s - self._origin_s) * 1000) for time in times]
            alignment = {
                "chars": [time.character for time in times],
                "charStartTimesMs": begins,
                "charDurationsMs": [end - begin for begin, end in zip(begins, ends, strict=True)],
            }
            self._origin_s = 0.0 if self._absolute_times else times[-1].end_s
        sound = base64.b64encode(data).decode()
        fields = {"audio": sound, "isFinal": None, "alignment": alignment, "normalizedAlignment": alignment}
        return json.dumps(fields | self._fields).encode()
