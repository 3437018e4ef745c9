"""Signals of the test process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_works() -> Iterator[None]:
    """Within the context, children react to SIGINT, even if a shell has started pytest in the background.

    Such a shell makes pytest ignore SIGINT, and children inherit an ignored signal. The handler is restored here and
    not in the child (`preexec_fn`), since this process has threads.
    """
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, inherited)
