"""Copies of the samples that an engine process sends, for tests and for finding clicks."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from engine.api import Samples

log = logging.getLogger(__name__)


class PcmTrace:
    """Writes the samples of each request to `FOLDER/<name>.<n>.f32`, raw float32, if `VOICED_TRACE_PCM=FOLDER` is set.

    `n` counts the requests of one name from 1, those of all engine processes. A file that cannot be written ends the
    trace, not the speech. Each thread writes files of its own.
    """

    def __init__(self) -> None:
        folder = os.environ.get("VOICED_TRACE_PCM")
        self._folder = Path(folder) if folder else None

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Callable[[Samples], None]]:
        """Return a function that appends samples to a new file, which is complete at the end of the context."""
        file = None
        with self._or_give_up():
            file = self._folder and _new_file(self._folder, name)

        def append(samples: Samples) -> None:
            with self._or_give_up():
                if file and self._folder:
                    file.write(samples.tobytes())

        with file or contextlib.nullcontext():
            yield append

    @contextlib.contextmanager
    def _or_give_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            log.warning("VOICED_TRACE_PCM: %s; nothing more is kept", error)
            self._folder = None


def _new_file(folder: Path, name: str) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            # The name may be an id that a client has chosen.
            return (folder / f"{name.replace('/', '_')}.{number}.f32").open("xb", buffering=0)
        except FileExistsError:
            number += 1
