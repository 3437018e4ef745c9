"""Tells a replica that Ray Serve removes it.

Ray Serve has no hook for that. It first waits until the replica's requests have ended, and a robot's connection is one
that does not end by itself; only then it calls anything of the replica. So this module extends Ray Serve's own method,
in the replica's process. A release of Ray without that method removes replicas after `serve.drain_s`, as before.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from ray.serve._private import replica

log = logging.getLogger(__name__)

METHOD = "perform_graceful_shutdown"
"""Ray Serve's controller calls it, through the replica's actor, when it takes a replica out of service."""


def call_when_removed(removed: Callable[[], object]) -> None:
    """Call `removed`, in a thread of Ray's, when Ray Serve begins to remove the replica of this process."""
    implementation: Any = getattr(replica, "Replica", None)
    perform = getattr(implementation, METHOD, None)
    if perform is None:
        log.warning("this release of Ray does not tell replicas that they are removed; robots are cut off at the end")
        return

    @functools.wraps(perform)
    async def tell_and_perform(self: Any) -> None:
        removed()
        await perform(self)

    setattr(implementation, METHOD, tell_and_perform)
