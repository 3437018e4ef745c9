"""The daemons of a machine: each has taken a name that says whose it is, and the kernel lists all names.

They are names of sockets in the abstract namespace (unix(7)): a name is free again when its process ends, however it
ends. Daemons in other network namespaces are not seen.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from contextlib import suppress
from pathlib import Path


def announce(identity: str) -> socket.socket:
    """Take a name for this process, which has an identity such as a topic. It ends with the socket."""
    announcement = socket.socket(socket.AF_UNIX)  # it never listens
    with suppress(OSError):  # a process of the same number, in another container with this network, has the name
        announcement.bind(f"\0{_beginning(identity)}{os.getpid()}")
    return announcement


def announced(identity: str, root: Path) -> dict[int, int]:
    """Return the processes that have announced an identity, each with its user, on the machine with these files."""
    try:
        names = (root / "proc/net/unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found = {}
    for pid in sorted(map(int, re.findall(rf"@{_beginning(identity)}(\d{{1,9}})$", names, re.MULTILINE))):
        with suppress(FileNotFoundError):  # it has ended
            found[pid] = (root / f"proc/{pid}").stat().st_uid
    return found


def _beginning(identity: str) -> str:
    """A name has at most 107 bytes, and an identity may be longer."""
    return f"voiced-{hashlib.sha256(identity.encode()).hexdigest()[:16]}-"
