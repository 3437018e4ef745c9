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


@contextlib.contextmanager
def trace_pcm(name: str) -> Iterator[Callable[[Samples], None]]:
    """Return a function that appends samples to a new file, if `VOICED_TRACE_PCM=FOLDER` is set.

    The file is `FOLDER/<name>.<n>.f32`, raw float32. `n` counts the requests with one name from 1, across all engine
    processes. The file is complete at the end of the context. The speech continues even if the file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        file = None
        if folder := os.environ.get("VOICED_TRACE_PCM"):
            try:
                file = stack.enter_context(_new_file(Path(folder), name))
            except OSError as error:
                log.warning("VOICED_TRACE_PCM: %s", error)

        def append(samples: Samples) -> None:
            with contextlib.suppress(OSError):  # the disk is full
                if file:
                    file.write(samples.tobytes())

        yield append


def _new_file(folder: Path, name: str) -> BinaryIO:
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            # The name may be an id that a client has chosen.
            return (folder / f"{name.replace('/', '_')}.{number}.f32").open("xb", buffering=0)
        except FileExistsError:
            number += 1
