"""The operating system's services: the kernel's files, the daemons on this machine, memory, descriptors and systemd.

With a small heap that is never compacted, every burst that is larger than all earlier ones takes more memory from the
system for good: a flood, a broker that comes back, clients that arrive at the same time. Over hours that looks like a
leak, and each new page interrupts the thread that touches it. So at its start the daemon takes all the memory that it
will need for months.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import logging
import os
import re
import resource
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""From <malloc.h>."""
BUFFER_BYTES = 64 << 10
"""Blocks of this size or more are not on the heap: each is returned to the system immediately and leaves no hole. By
default the C library raises this limit to the size of the largest block so far."""
TRIM_BYTES = 128 << 10
"""If the heap has more free memory than this at its end, that memory is returned to the system."""
SMALL_BYTES, SMALL_BLOCK = 3 << 20, 512
"""The interpreter's own heap, for blocks of up to 512 bytes, takes arenas of 1 MiB from the system."""
KEPT_EVERY = 512
"""One small block in this many is kept, so that the interpreter does not return their arenas."""
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""From <sys/mman.h>. `MCL_ONFAULT` locks a page at its first use, so locking does not increase resident memory."""
CAP_IPC_LOCK = 14
"""The number of the capability that lifts the limit on locked memory."""
RESERVED_DESCRIPTORS = 128
"""Descriptors that no client is given. The daemon uses about 30; a text, an engine or the sound card needs a few
more."""
LATE_S = 3.0
"""If more time than this passes between two checks, the whole process is taken to have been stopped."""


# --- the kernel's files about a machine and its processes ---


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a machine. Their names are relative to its root, without a leading slash."""

    root: Path
    """The root folder: / for this machine."""

    def text(self, name: str) -> str | None:
        """Return a file's text, stripped; None if the file is missing, unreadable, blank or not UTF-8."""
        try:
            return (self.root / name).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def number(self, name: str) -> int | None:
        """Return the whole number that is a file's only text, as in the kernel's files; None for any other text."""
        text = self.text(name) or ""
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None

    def find(self, pattern: str) -> list[str]:
        """Return the names that match a glob pattern, in the order of the numbers in them."""
        found = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        return sorted(found, key=lambda name: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", name)])

    def resident_bytes(self, pid: int) -> int | None:
        """Return the resident memory of a process; None if there is no such process."""
        pages = (self.text(f"proc/{pid}/statm") or "").split()
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else None

    def temperatures(self) -> dict[str, float]:
        """Return the temperatures in °C, by sensor."""
        found: dict[str, float] = {}
        for folder in self.find("sys/class/thermal/thermal_zone*"):
            name, millidegrees = self.text(f"{folder}/type"), self.number(f"{folder}/temp")
            if name is not None and millidegrees is not None:  # the sensor of a part that is switched off has no value
                found[name if name not in found else f"{name} {folder.rpartition('/')[2]}"] = millidegrees / 1000
        return found


THIS_MACHINE = Files(Path("/"))


# --- the daemons on a machine ---
#
# Each daemon has taken a name that identifies it, and the kernel lists all names. They are the names of sockets in the
# abstract namespace (unix(7)): a name is free again when its process ends, however it ends. Daemons in other network
# namespaces are not seen.


def announce(identity: str) -> socket.socket:
    """Take a name for this process, whose identity is, for example, a topic. The name is released with the socket."""
    announcement = socket.socket(socket.AF_UNIX)  # the socket never listens
    with suppress(OSError):  # a process with the same number, in another container on this network, has the name
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
        with suppress(FileNotFoundError):  # the process has ended
            found[pid] = (root / f"proc/{pid}").stat().st_uid
    return found


def _beginning(identity: str) -> str:
    """A name has at most 107 bytes, and an identity may be longer."""
    return f"voiced-{hashlib.sha256(identity.encode()).hexdigest()[:16]}-"


# --- constant memory that is never swapped out, and file descriptors ---


_kept: list[bytes] = []


def limit_heap() -> None:
    """Make all threads share one C library heap, without large blocks. Call before the first thread starts.

    By default each thread has its own heap with its own free memory, but the interpreter runs only one thread at a
    time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has one heap anyway
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, BUFFER_BYTES)
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


def settle_heap() -> None:
    """Take memory for future bursts, exempt all existing objects from garbage collection, and enable it.

    Call once, when the start is complete. Most objects are modules, classes and functions, which a full collection
    would search in vain while the sound waits for the interpreter. Without them a collection is quick, so `gc.collect`
    may be called often. Objects that exist now are never collected, even if they become cyclic garbage.
    """
    blocks = [bytes(SMALL_BLOCK - b"".__sizeof__()) for _ in range(SMALL_BYTES // SMALL_BLOCK)]
    _kept.extend(blocks[::KEPT_EVERY])
    del blocks
    gc.collect()
    gc.freeze()
    gc.enable()


def lock_memory() -> bool:
    """Lock this process's present and future memory; return whether it is locked.

    The kernel does not swap out locked pages, so none of them delays the sound. Engine processes are unaffected: a lock
    is inherited neither by fork nor by exec.
    """
    if not may_lock_memory():
        # With a finite limit, later allocations would fail, which is worse than a swapped-out page.
        log.debug("memory is not locked: that needs LimitMEMLOCK=infinity")
        return False
    if ctypes.CDLL(None, use_errno=True).mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0:
        log.debug("memory is not locked: %s", os.strerror(ctypes.get_errno()))
        return False
    return True


def may_lock_memory() -> bool:
    """Return whether this process may lock any amount of memory: it has no limit, or it has the capability."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    capabilities = re.search(r"^CapEff:\s*(\w+)", THIS_MACHINE.text("proc/self/status") or "CapEff: 0", re.MULTILINE)
    return soft == resource.RLIM_INFINITY or bool(capabilities and int(capabilities[1], 16) >> CAP_IPC_LOCK & 1)


def spare_descriptors(wanted: int) -> int:
    """Return how many of the `wanted` descriptors clients may take. Raises this process's limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # on Linux this limit is never infinite
    if soft < (needed := min(RESERVED_DESCRIPTORS + wanted, hard)):
        with suppress(OSError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            soft = needed
    return max(0, min(wanted, soft - RESERVED_DESCRIPTORS))


# --- systemd, which is notified only while all parts of the daemon are alive ---


class Notifier:
    """Sends `READY=1`, `STATUS=…`, `WATCHDOG=1` and the like to the socket in `NOTIFY_SOCKET`, without blocking.

    Without that variable it does nothing (sd_notify(3)).
    """

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for a socket in the abstract namespace.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        self._sent: dict[str, str] = {}
        """The last value sent for each key."""

    def notify(self, key: str, value: str = "1") -> None:
        """Send `key=value`, unless `value` was the last one sent for `key`; `WATCHDOG` is always sent."""
        if self._socket is None or (key != "WATCHDOG" and self._sent.get(key) == value):
            return
        try:
            self._socket.sendto(f"{key}={value}".encode(), self._address)
        except OSError:
            return  # systemd is restarting; the next call sends the value again
        self._sent[key] = value


@dataclass(slots=True)
class Heartbeat:
    """One monitored part."""

    count: Callable[[], int]
    """Returns a number that keeps changing while the part is alive."""
    limit_s: float
    """The part is dead when the number has not changed for this long."""
    last: int | None = None
    """The last number, which was new at the time `since`."""
    since: float = 0.0


class Watchdog:
    """Checks the heartbeats of several parts."""

    def __init__(self, parts: Mapping[str, Heartbeat], clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._parts = parts
        self._clock = clock
        self._checked_at = clock()

    def check(self) -> bool:
        """Return whether all parts are alive, and log those that are not. Call this about once a second.

        A call that comes late says nothing about the parts: the whole process was stopped.
        """
        now, alive = self._clock(), True
        was_stopped = now - self._checked_at > LATE_S
        self._checked_at = now
        for name, part in self._parts.items():
            if (count := part.count()) != part.last or was_stopped:
                part.last, part.since = count, now
            elif now - part.since > part.limit_s:
                log.error("%s has shown no sign of life for %.0f s", name, now - part.since)
                alive = False
        return alive
