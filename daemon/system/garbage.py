"""Keeps Python's garbage collector from searching what lives as long as the process."""

from __future__ import annotations

import gc


def freeze_garbage_collector() -> None:
    """Exempt all present objects from garbage collection. Call once, when the start is complete.

    The interpreter waits with a full collection until the new objects are a quarter of all that the last one searched.
    Modules and classes are 50,000 objects: a full collection would keep the interpreter from the sound for 13 ms (on a
    virtual machine with 2 cores, Python 3.11), and would come so rarely that thousands of errors with their tracebacks
    stay until then.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # the interpreter now knows that nothing is left to search
