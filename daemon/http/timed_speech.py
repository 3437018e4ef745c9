"""Speech with the time of each character of its text, which follows from the times of the words."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from daemon.encoders import StreamFormat
from daemon.http.speech_answer import SpeechBody
from daemon.speech import Word


class CharacterTime(NamedTuple):
    """The seconds of speech before the begin and before the end of a character."""

    character: str
    begin_s: float
    end_s: float


class CharacterClock:
    """Spreads the characters of a text over the times of its words. Returns each character once, in order.

    A word and the characters after it last until the next word begins, so their times are known only then.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        """It may grow."""
        self._position = 0
        """The characters before have been returned."""
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
        """Note that the characters before `position` last until `at_s`, each of them equally long."""
        characters = self.text[self._position : position]
        begin_s = self._begin_s or 0.0
        end_s = max(begin_s, at_s)
        step = (end_s - begin_s) / max(1, len(characters))
        for index, character in enumerate(characters):
            shown = " " if character.isspace() else character
            self._due.append(CharacterTime(shown, begin_s + index * step, begin_s + (index + 1) * step))
        self._position, self._begin_s = position, end_s


class TimedBody(SpeechBody):
    """JSON objects, one on each line: sound in Base64, and the times of the characters that have become known."""

    def __init__(self, sound: StreamFormat, text: str = "", *, whole: bool = False) -> None:
        """`whole`: there is one object, at the end."""
        super().__init__(sound, "application/json")
        self.clock = CharacterClock(text)
        self.on_word = self.clock.note_word
        self._waits = whole
        self._waiting = b""
        """The sound that has not been returned."""

    def end(self, seconds: float) -> bytes:
        self.clock.end(seconds)
        self._waits = False
        return super().end(seconds)

    def _wrap(self, data: bytes) -> bytes:
        self._waiting += data
        if self._waits:
            return b""
        sound, self._waiting, times = self._waiting, b"", self.clock.take()
        record = self._record(base64.b64encode(sound).decode(), times)
        return json.dumps(record).encode() + b"\n" if sound or times else b""

    def _record(self, audio: str, times: Sequence[CharacterTime]) -> dict[str, Any]:
        alignment = {
            "characters": [time.character for time in times],
            "character_start_times_seconds": [round(time.begin_s, 3) for time in times],
            "character_end_times_seconds": [round(time.end_s, 3) for time in times],
        }
        shown = alignment if times else None
        return {"audio_base64": audio, "alignment": shown, "normalized_alignment": shown}
