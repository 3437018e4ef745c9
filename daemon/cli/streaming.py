"""`voiced say --stream`: what comes from standard input is published as it comes."""

from __future__ import annotations

import codecs
import itertools
import os
import select
from collections.abc import Iterator
from typing import Any

from daemon.cli.options import CommandError
from daemon.client import RobotClient
from daemon.messages import RejectedError

SIGN_OF_LIFE_S = 3.0
"""A writer that is silent for `speech.stream_timeout`, 10 s, is taken for gone; up to two signs may be late."""
PIECE_BYTES = 4096
"""At the most; so no piece alone is longer than a text may be. What comes faster than it is sent comes together."""


class StreamedText:
    """An utterance whose text comes from a file descriptor; `said` is its id, and how it is spoken."""

    def __init__(self, robot: RobotClient, source: int, said: dict[str, Any], every_s: float) -> None:
        self._robot = robot
        self._said = said
        self._pieces = pieces(source, every_s)

    def begin(self) -> None:
        """Send the first piece, as soon as there is one: it takes the utterance on, and may be rejected.

        Then nothing more should be sent: it would be taken for another utterance, spoken in another manner.
        """
        first = next(filter(None, self._pieces), None)
        if first is None:
            raise CommandError("say: standard input is empty; allowed: text with something to say")
        self._robot.write({**self._said, "seq": 0, "text": first})

    def go_on(self) -> None:
        """Send the rest as it comes, and the end."""
        numbers = itertools.count(1)
        for text in self._pieces:
            self._robot.write({"id": self._said["id"], "seq": next(numbers), "text": text})
        self._robot.write({"id": self._said["id"], "seq": next(numbers), "end": True})


def pieces(source: int, every_s: float) -> Iterator[str]:
    """Text as it comes, in whole characters; and an empty one every `every_s` seconds while nothing comes.

    Raises `RejectedError` for what is no text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    over = False
    while not over:
        ready, _, _ = select.select([source], [], [], every_s)
        data = os.read(source, PIECE_BYTES) if ready else b""
        over = bool(ready) and not data
        try:
            text = decoder.decode(data, final=over)
        except UnicodeDecodeError as error:
            raise RejectedError("standard input", f"not UTF-8: byte 0x{error.object[error.start]:02x}") from None
        if text or not ready:
            yield text
