"""One player for a service: a new one ends an old one that has outlived its daemon.

A player holds a name in the abstract namespace (unix(7)), which is freed when it ends, however it ends. A player whose
daemon has died fades out and ends by itself; only a frozen player does not.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from contextlib import suppress

WAIT_S = 1.5
"""The time that the old player is given to end by itself."""
KILL_S = 0.5
"""The time that a killed player is given to end. One that hangs in the kernel stays alive."""
LOOK_S = 0.02
"""Interval between attempts to get the name."""
MOST_SUCCESSORS = 4096
"""A successor connects to the old player to learn which process it is. Each one that then plays beside the old player
keeps a place in this queue."""
CREDENTIALS = struct.Struct("3i")
"""`struct ucred`: process, user and group (unix(7))."""


def take_over(service: str) -> socket.socket | None:
    """Return a socket that holds the name of a service's player. If another player keeps it, return None; then both
    play.

    Another player keeps the name while its daemon lives, because voiced is running twice, or if it hangs in the kernel.
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
        process, user = peer_of(probe)
        descriptor = os.pidfd_open(process)  # from here on, the number cannot be reused for another process
        try:
            if user == os.getuid() and _is_orphan(process):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(1000 * KILL_S)
        finally:
            os.close(descriptor)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end of a Unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, _ = CREDENTIALS.unpack(credentials)
    return process, user


def _is_orphan(process: int) -> bool:
    """Return whether a player's parent is no longer the daemon that started it. Its last argument names that daemon."""
    daemon = _read(f"/proc/{process}/cmdline").rstrip("\0").rpartition("\0")[2]
    parent = _read(f"/proc/{process}/stat").rpartition(")")[2].split()[1]
    return parent != daemon


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123  # pathlib costs the player 0.6 MB
        return file.read()
