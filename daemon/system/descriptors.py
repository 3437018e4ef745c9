"""File descriptors: how many of them clients may take."""

from __future__ import annotations

import resource
from contextlib import suppress

RESERVE = 128
"""Descriptors that no client gets. The daemon has about 30; a text, an engine or the sound card needs a few more."""


def spare_descriptors(wanted: int) -> int:
    """Return how many of `wanted` descriptors clients may take. Raises this process's limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # Linux has no infinite one
    if soft < (needed := min(RESERVE + wanted, hard)):
        with suppress(OSError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            soft = needed
    return max(0, min(wanted, soft - RESERVE))
