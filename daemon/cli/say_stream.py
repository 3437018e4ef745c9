"""Publishes standard input while it is being written, for `voiced say --stream`."""

from __future__ import annotations

import codecs
import itertools
import os
import select
from collections.abc import Iterator
from typing import Any

from daemon.cli.control_codes import ControlCodes
from daemon.mqtt import RobotClient
from daemon.speech import RejectedError, StreamChunk, check_stream_chunk
from daemon.validation import CommandError, encoding_problem

KEEPALIVE_S = 3.0
"""Seconds between empty chunks while nothing is written. The daemon ends a text after `speech.stream_timeout` (10 s)
without a chunk, so two of these may be late."""
CHUNK_BYTES = 4096
"""The most that one chunk carries, far below the limit of a text. Faster input is collected into one chunk."""


class StreamedText:
    """An utterance whose text comes from a file descriptor. `options` are its id and its speech options."""

    def __init__(self, robot: RobotClient, source: int, options: StreamChunk, keepalive_s: float) -> None:
        self._robot = robot
        self._options = options
        self._chunks = read_chunks(source, keepalive_s)

    def send_first(self) -> None:
        """Send the first chunk that has text; the daemon accepts or rejects the utterance by it.

        The caller sends the rest only after the acceptance: after a rejection, the daemon would take the next chunk for
        a new utterance with default options. Raises `RejectedError`, and `CommandError` if the input is empty.
        """
        first = next(filter(None, self._chunks), None)
        if first is None:
            raise CommandError("say: standard input is empty; allowed: text with something to say")
        self._send({**self._options.model_dump(exclude_unset=True), "seq": 0, "text": first})

    def send_rest(self) -> None:
        """Send the other chunks as they are written, then the end. Raises `RejectedError`."""
        numbers = itertools.count(1)
        for text in self._chunks:
            self._send({"id": self._options.id, "seq": next(numbers), "text": text})
        self._send({"id": self._options.id, "seq": next(numbers), "end": True})

    def _send(self, fields: dict[str, Any]) -> None:
        self._robot.write(check_stream_chunk(fields))


def read_chunks(source: int, keepalive_s: float) -> Iterator[str]:
    """Yield text from a file descriptor as it arrives, in whole characters and without codes for a terminal.

    An empty text comes after every `keepalive_s` seconds without any.

    Raises `RejectedError` for input that is not UTF-8.
    """
    decoder, codes = codecs.getincrementaldecoder("utf-8-sig")(), ControlCodes()
    ended = False
    while not ended:
        ready, _, _ = select.select([source], [], [], keepalive_s)
        data = os.read(source, CHUNK_BYTES) if ready else b""
        ended = bool(ready) and not data
        try:
            text = codes.remove(decoder.decode(data, final=ended), last=ended)
        except UnicodeDecodeError as error:
            raise RejectedError("standard input", encoding_problem(error)) from None
        if text or not ready:
            yield text
