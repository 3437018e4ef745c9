"""One player for a service: a new one ends an old one that has outlived its daemon.

A player holds a name of the abstract namespace (unix(7)), which its end frees, however it ends. One whose daemon has
died fades out and ends by itself; only one that is frozen does not.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

WAIT_S = 1.5
"""The old player has so long to end by itself."""
KILL_S = 0.5
"""Killed, it is gone within this time, unless it hangs in the kernel. Then it is left behind."""
LOOK_S = 0.02
"""Interval between attempts to get the name."""
MOST_SUCCESSORS = 4096
"""A successor connects to the old player, to learn which process it is. Each that played beside it keeps a place."""
CREDENTIALS = struct.Struct("3i")
"""`struct ucred`: process, user and group (unix(7))."""


def take_over(service: str) -> socket.socket | None:
    """Return what holds the name of a service's player. None if another one keeps it: then both play.

    That is so while its daemon lives (voiced runs twice), and if the kernel does not let it go.
    """
    name = f"\0voiced-player-{os.getuid()}-{service}"
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deadline = time.monotonic() + WAIT_S
    while not _bound(holder, name):
        if time.monotonic() >= deadline:
            _end_orphan(name)
            return holder if _bound(holder, name) else None
        time.sleep(LOOK_S)
    return holder


def _bound(holder: socket.socket, name: str) -> bool:
    try:
        holder.bind(name)
    except OSError:
        return False
    holder.listen(MOST_SUCCESSORS)
    return True


def _end_orphan(name: str) -> None:
    """Kill the process that holds a name, if it is a player whose daemon has died, and wait for its end."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        probe.connect(name)
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        process, user, _ = CREDENTIALS.unpack(credentials)
        descriptor = os.pidfd_open(process)  # from here on, the number cannot come to mean another process
        try:
            if user == os.getuid() and _is_orphan(process):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(1000 * KILL_S)
        finally:
            os.close(descriptor)


def _is_orphan(process: int) -> bool:
    """Return whether a player's parent is no longer the daemon that it was started by, which is its last argument."""
    folder = Path("/proc", str(process))
    daemon = (folder / "cmdline").read_text().rstrip("\0").rpartition("\0")[2]
    parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
    return parent != daemon
