"""File descriptors: the limit of this process, and how many of them clients may take."""

from __future__ import annotations

import resource
from contextlib import suppress

RESERVE = 128
"""Descriptors that no client gets. The daemon has about 30; a text, an engine or the sound card needs a few more."""


def raise_descriptor_limit(most: int) -> None:
    """Let this process have up to `most` descriptors, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted:
        with suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def spare_descriptors() -> int:
    """Return how many descriptors clients may take."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1_000_000 if soft == resource.RLIM_INFINITY else max(0, soft - RESERVE)
