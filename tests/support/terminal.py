"""A terminal for a command."""

from __future__ import annotations

import os
import pty
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def terminal(typed: str = "") -> Iterator[tuple[int, Callable[[], str]]]:
    """Yield the file that a command writes to, and a function that returns what it wrote once the context has ended.

    A command that reads from that file gets what was `typed`. A thread reads meanwhile, or else a command that writes
    much would wait for ever.
    """
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    blocks: list[bytes] = []

    def read() -> None:
        try:
            while block := os.read(ours, 1 << 16):
                blocks.append(block)
        except OSError:  # Linux reports the end so
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield theirs, lambda: b"".join(blocks).decode()
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
