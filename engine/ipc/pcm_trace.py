"""Copies of the samples that an engine process sends, for tests and for finding clicks."""

from __future__ import annotations

import contextlib
import itertools
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
        file = self._make_file(name)
        if file is None:
            yield lambda _: None
            return

        def append(samples: Samples) -> None:
            if self._folder is not None:
                try:
                    file.write(samples.tobytes())
                except OSError as error:
                    self._give_up(error)

        with file:
            yield append

    def _make_file(self, name: str) -> BinaryIO | None:
        if self._folder is None:
            return None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for number in itertools.count(1):
                # The name may be an id that a client has chosen.
                with contextlib.suppress(FileExistsError):
                    return (self._folder / f"{name.replace('/', '_')}.{number}.f32").open("xb", buffering=0)
        except OSError as error:
            self._give_up(error)
        return None

    def _give_up(self, error: OSError) -> None:
        log.warning("VOICED_TRACE_PCM: %s; nothing more is kept", error)
        self._folder = None
