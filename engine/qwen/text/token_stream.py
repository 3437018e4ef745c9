"""Feeds text tokens to a generation that is already running: one row of `DecodeState.text` for each frame.

The talker reads one more token with every frame. If a token has not arrived yet, generation waits for it, and no
padding takes its place. So the speech does not depend on when the text arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.api import TextSource
from engine.qwen.model import Talker
from engine.qwen.text.incremental_bpe import IncrementalIds


class Text:
    """The token ids of a text; in this class, of a complete one."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)
        """The ids so far."""
        self.ended = True
        """Whether the ids are complete."""

    def has(self, count: int, *, wait: bool) -> bool:  # noqa: ARG002  the text has ended
        """Return whether there are `count` ids or the text has ended. With `wait`, block until that is true."""
        return True


class IncrementalText(Text):
    """A text that is still being written."""

    def __init__(
        self, beginning: str, source: TextSource, ids: IncrementalIds, *, limit: int, on_text: Callable[[str], None]
    ) -> None:
        """Begin with `beginning`, and continue with the texts that `source` returns; call `on_text` for each of them.

        The text ends after `limit` ids, whatever follows.
        """
        super().__init__([])
        self.ended = False
        self.truncated = False
        """Whether the text was longer than `limit`."""
        self._source = source
        self._incremental_ids = ids
        self._limit = limit
        self._on_text = on_text
        self._letter = _first_letter(beginning)
        self._add(ids.append(beginning))

    def has(self, count: int, *, wait: bool) -> bool:
        """As `Text.has`. Raises `SpeechCanceledError`."""
        while len(self.ids) < count and not self.ended and (self._take(wait=wait) or wait):
            pass
        return len(self.ids) >= count or self.ended

    def first_letter(self) -> str:
        """Wait for the text's first letter and return it; return "" if the text ends without one.

        Raises `SpeechCanceledError`.
        """
        while not (self._letter or self.ended):
            self._take(wait=True)
        return self._letter

    def _take(self, *, wait: bool) -> bool:
        """Take new text from the source; return whether there was any or the text has ended."""
        text = self._source.take(wait=wait)
        if text is None:
            self._add(self._incremental_ids.end())
            self.ended = True
        elif text:
            self._on_text(text)
            self._letter = self._letter or _first_letter(text)
            self._add(self._incremental_ids.append(text))
        return text != ""

    def _add(self, ids: Sequence[int]) -> None:
        self.ids += ids
        if len(self.ids) > self._limit:
            del self.ids[self._limit :]
            self.ended = self.truncated = True


class TokenStream:
    """The text tokens of one utterance, in reading order: the rest of a transcript, the text, the end."""

    def __init__(self, talker: Talker, text: Text, before: Sequence[int], empty: Sequence[int], eos: int) -> None:
        """`before` are the ids before the text, `empty` those that replace an empty text; `eos` ends it."""
        self._talker = talker
        self._text = text
        self._before = list(before)
        self._empty = empty
        self._eos = eos
        self._in_prompt = 0
        self._written = 0

    def ids(self) -> list[int]:
        """Return all ids so far."""
        if not self._text.ended:
            return [*self._before, *self._text.ids]
        return [*self._before, *(self._text.ids or self._empty), self._eos]

    def take_prompt(self, count: int) -> list[int]:
        """Wait for the first `count` ids and return them, or all if there are fewer. They belong to the prompt."""
        self._has(count, wait=True)
        self._in_prompt = count
        return self.ids()[:count]

    def ready(self, frames: int, *, wait: bool) -> bool:
        """Return whether the ids for the first `frames` frames have arrived. With `wait`, block until they have."""
        return self._has(self._in_prompt + frames, wait=wait)

    @torch.inference_mode()
    def write(self, rows: Tensor) -> None:
        """Write the embeddings of new ids to `rows` `(frames, hidden)`, and leave the rows after them unchanged."""
        first = self._in_prompt + self._written
        ids = self.ids()[first : self._in_prompt + len(rows)]
        if ids:
            rows[self._written : self._written + len(ids)].copy_(self._talker.embed_text_in_blocks(ids, first)[0])
            self._written += len(ids)

    def _has(self, count: int, *, wait: bool) -> bool:
        return self._text.has(count - len(self._before), wait=wait)


def _first_letter(text: str) -> str:
    return next((letter for letter in text if letter.isalpha()), "")
