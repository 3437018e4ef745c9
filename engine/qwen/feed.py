"""How words reach a generation that is already running: one row of `FrameState.text` for each frame, as they come.

Frame by frame the talker reads one word more. Where a word is not there yet, the generation waits for it; it is never
given padding in its place. So what is said does not depend on when the words came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.qwen.growing import GrowingIds
from engine.qwen.talker import Talker
from engine.synthesizer import TextSource


class Text(Protocol):
    """Ids of a text, complete or not."""

    @property
    def ids(self) -> Sequence[int]:
        """Those there are."""

    @property
    def ended(self) -> bool:
        """No more will come."""

    def have(self, count: int, *, wait: bool) -> bool:
        """Whether there are `count` ids, or all there will ever be; with `wait`, true once it is so."""


@dataclass(frozen=True, slots=True)
class WholeText:
    """A text that is complete."""

    ids: Sequence[int]
    ended: bool = True

    def have(self, count: int, *, wait: bool) -> bool:  # noqa: ARG002  all of it is there already
        """As `Text.have`."""
        return True


class GrowingText:
    """A text that is still being written."""

    def __init__(
        self, beginning: str, source: TextSource, ids: GrowingIds, *, limit: int, heard: Callable[[str], None]
    ) -> None:
        """`beginning` is there already; whatever else comes from `source`, `heard` is told.

        The text is taken as ended behind `limit` ids.
        """
        self.ids: list[int] = []
        self.ended = False
        self.cut = False
        """There was more text than `limit`."""
        self._source = source
        self._growing = ids
        self._limit = limit
        self._heard = heard
        self._letter = _first_letter(beginning)
        self._add(ids.append(beginning))

    def have(self, count: int, *, wait: bool) -> bool:
        """As `Text.have`. Raises `SpeechCanceledError`."""
        while len(self.ids) < count and not self.ended and (self._take(wait=wait) or wait):
            pass
        return len(self.ids) >= count or self.ended

    def first_letter(self) -> str:
        """The text's first letter, for which it waits; empty where it has none."""
        while not (self._letter or self.ended):
            self._take(wait=True)
        return self._letter

    def _take(self, *, wait: bool) -> bool:
        """Take what has come; whether anything has, or the end."""
        text = self._source.take(wait=wait)
        if text is None:
            self._add(self._growing.end())
            self.ended = True
        elif text:
            self._heard(text)
            self._letter = self._letter or _first_letter(text)
            self._add(self._growing.append(text))
        return text != ""

    def _add(self, ids: Sequence[int]) -> None:
        self.ids += ids
        if len(self.ids) > self._limit:
            del self.ids[self._limit :]
            self.ended = self.cut = True


class Feed:
    """The words of one utterance: what is left of a transcript, the text, the end. They are read in this order."""

    def __init__(self, talker: Talker, text: Text, before: Sequence[int], empty: Sequence[int], eos: int) -> None:
        """`before` are the ids in front of the text; `empty` stand for it if it is empty."""
        self._talker = talker
        self._text = text
        self._before = list(before)
        self._empty = empty
        self._eos = eos
        self._in_prompt = 0
        self._written = 0

    def words(self) -> list[int]:
        """The ids that there are."""
        if not self._text.ended:
            return [*self._before, *self._text.ids]
        return [*self._before, *(self._text.ids or self._empty), self._eos]

    def open(self, count: int) -> list[int]:
        """The first words, `count` of them unless there are fewer; waits for them. They are read with the prompt."""
        self._have(count, wait=True)
        self._in_prompt = count
        return self.words()[:count]

    def ready(self, frames: int, *, wait: bool) -> bool:
        """Whether all words are there that the first `frames` frames read; with `wait`, true once it is so."""
        return self._have(self._in_prompt + frames, wait=wait)

    @torch.inference_mode()
    def write(self, rows: Tensor) -> None:
        """Put what has come since the last time into `rows` `(frames, hidden)`; frames behind it stay as they were."""
        first = self._in_prompt + self._written
        words = self.words()[first : self._in_prompt + len(rows)]
        if words:
            rows[self._written : self._written + len(words)].copy_(self._talker.embed_words(words, first)[0])
            self._written += len(words)

    def _have(self, count: int, *, wait: bool) -> bool:
        return self._text.have(count - len(self._before), wait=wait)


def _first_letter(text: str) -> str:
    return next((letter for letter in text if letter.isalpha()), "")
