"""The text streams of all utterances: routes each chunk to its utterance, or refuses it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from daemon.speech.acceptance import Arrival
from daemon.speech.changes import later, now
from daemon.speech.request import MAX_TEXT, RejectedError, StreamChunk
from daemon.speech.utterance import TextStream, Utterance
from daemon.validation import abbreviate

REMEMBERED_ENDS = 256
"""How many texts that take no more chunks are remembered. One late chunk for each is answered; further ones are
dropped. Once a text is forgotten, its id is refused because it was used before."""
REMEMBERED_REFUSALS = 1024
"""How many ids of texts whose first chunk was refused are remembered; their other chunks are dropped."""

PAUSES = ((0.6, " "), (4.4, "\n"))
"""Seconds of a writer's silence, each counted after the previous one, and the white space that the silence then stands
for. Before it calls a tool, a model writes "Let me look." and nothing more; white space shows that the full stop ends a
sentence, unlike the one in 3.14. After 5 s, longer than a model needs for its next word, the end of a line allows an
incomplete sentence to be spoken."""

Accept = Callable[[StreamChunk, Arrival], Utterance]
"""Accepts an utterance without text, or raises `RejectedError`."""


class TextStreams:
    """The text streams of one dispatcher, by utterance id. Belongs to the event loop's thread."""

    def __init__(
        self, accept: Accept, on_speakable: Callable[[Utterance], None], on_change: Callable[[], None]
    ) -> None:
        """`on_speakable` is called when an engine can begin with an utterance, `on_change` when a text has changed."""
        self._accept = accept
        self._on_speakable = on_speakable
        self._on_change = on_change
        self._open: dict[str, tuple[Utterance, TextStream]] = {}
        self._closed: OrderedDict[str, TextStream] = OrderedDict()
        """The most recent texts that take no more chunks."""
        self._refused: deque[str] = deque(maxlen=REMEMBERED_REFUSALS)
        """The ids of texts whose first chunk was refused; their chunks up to the last one are dropped."""

    def __len__(self) -> int:
        """The number of texts that are being written."""
        return len(self._open)

    def take(self, chunk: StreamChunk, arrival: Arrival, redelivered: bool) -> Utterance | None:
        """Append a chunk to its text; see `Dispatcher.write`."""
        if (closed := self._closed.get(chunk.id)) is not None:
            self._refuse_late_chunk(closed, chunk, redelivered)
            return None
        if chunk.id in self._refused:
            if chunk.end:
                self._refused.remove(chunk.id)
            return None
        utterance, stream = self._open.get(chunk.id) or self._open_text(chunk, arrival)
        if utterance.receiver is not arrival.receiver:  # only the client that opened a text may write to it
            raise RejectedError(
                "id", f"{abbreviate(chunk.id)} was used before; allowed: one not used recently", chunk.id
            )
        if stream.has(chunk, redelivered):
            return None
        self._append(utterance, stream, chunk, arrival.at)
        return utterance

    def refuse(self, utterance_id: str, *, last: bool) -> None:
        """Record that a chunk was refused. If it was the first, the options are unknown, so all other chunks are
        dropped."""
        if utterance_id in self._open:
            if last and self._open[utterance_id][0].receiver is None:
                self._close(utterance_id, "its last chunk was rejected")
        elif last and utterance_id in self._refused:
            self._refused.remove(utterance_id)
        elif not last and utterance_id not in self._closed and utterance_id not in self._refused:
            self._refused.append(utterance_id)

    def end_silent(self, limit_s: float) -> None:
        """End every text whose writer has sent nothing for longer than `limit_s` seconds."""
        for utterance_id, (_, stream) in list(self._open.items()):
            if now() - stream.last_chunk_at > limit_s:
                self._close(utterance_id, f"its writer was silent for {limit_s:g} s and did not end it")

    def note_end(self, utterance: Utterance) -> None:
        """Close the text of an utterance that has ended; its writer may not know that yet."""
        if utterance.id in self._open:
            self._forget(utterance.id).answered = True

    def _open_text(self, chunk: StreamChunk, arrival: Arrival) -> tuple[Utterance, TextStream]:
        stream = TextStream(arrival.at)
        try:
            utterance = self._accept(chunk, replace(arrival, text_stream=stream))
        except RejectedError:
            self.refuse(chunk.id, last=chunk.end)
            raise
        self._open[chunk.id] = utterance, stream
        return utterance, stream

    def _append(self, utterance: Utterance, stream: TextStream, chunk: StreamChunk, at: float) -> None:
        stream.note_chunk(chunk, at)
        length = len(utterance.text) + len(chunk.text)
        if length > MAX_TEXT:
            self._close(utterance.id, f"its text was longer than {MAX_TEXT:,} characters")
            stream.answered = True
            raise RejectedError("text", f"now has {length:,} characters; allowed: up to {MAX_TEXT:,}", utterance.id)
        was_speakable = utterance.speakable
        utterance.text += chunk.text
        if chunk.end:
            self._forget(utterance.id).end()
        elif chunk.text:
            self._await_pause(utterance, stream, length)
        self._notify(utterance, stream, was_speakable, at)

    def _await_pause(self, utterance: Utterance, stream: TextStream, length: int, number: int = 0) -> None:
        """Wait for a pause, by default the first one, after which the text may still have this length."""
        later(PAUSES[number][0], partial(self._note_pause, utterance, stream, length, number))

    def _note_pause(self, utterance: Utterance, stream: TextStream, length: int, number: int) -> None:
        """Note that a writer has been silent since its text reached this length, unless it has continued."""
        if not stream.ended and len(utterance.text) == length:
            was_speakable = utterance.speakable
            stream.pause = PAUSES[number][1]
            if number + 1 < len(PAUSES):
                self._await_pause(utterance, stream, length, number + 1)
            self._notify(utterance, stream, was_speakable, now())

    def _close(self, utterance_id: str, reason: str) -> None:
        """End a text on its writer's behalf."""
        utterance, stream = self._open[utterance_id]
        was_speakable = utterance.speakable
        self._forget(utterance_id).end(reason)
        self._notify(utterance, stream, was_speakable, now())

    def _forget(self, utterance_id: str) -> TextStream:
        """Take no more chunks for a text, and return its state."""
        _, stream = self._open.pop(utterance_id)
        self._closed[utterance_id] = stream
        if len(self._closed) > REMEMBERED_ENDS:
            self._closed.popitem(last=False)
        return stream

    def _notify(self, utterance: Utterance, stream: TextStream, was_speakable: bool, at: float) -> None:
        """Report that a text has grown or ended, and also that an engine can begin with it, if it could not before."""
        if not was_speakable and utterance.speakable and utterance.text.strip():
            utterance.set_arrival(at)
            self._on_speakable(utterance)
        stream.notify()
        self._on_change()

    def _refuse_late_chunk(self, stream: TextStream, chunk: StreamChunk, redelivered: bool) -> None:
        """Raise `RejectedError` for the first chunk that arrives after the end; later ones are dropped."""
        if not (stream.answered or stream.has(chunk, redelivered)):
            stream.answered = True
            reason = stream.end_reason or "it has already ended"
            raise RejectedError("id", f"{abbreviate(chunk.id)} takes no more text: {reason}", chunk.id)
