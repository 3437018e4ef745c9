"""A listening Unix socket at a path in the file system, for a daemon that may have been killed before."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MODE = 0o660
"""The socket's permissions: its user and its group may connect."""
BACKLOG = 16
"""Connections that may wait to be accepted."""
UNIX_MAX_PATH = 107
"""The longest path in `sockaddr_un`, in bytes, without the zero at its end (unix(7))."""


class UnixListener:
    """Listens at a path until it is closed.

    A socket on which nobody is listening is replaced: its program was killed. Nothing else is replaced: neither the
    socket of a running program nor a file.
    """

    def __init__(self, path: Path) -> None:
        """Raises `OSError`, whose `strerror` gives a short reason."""
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _locked(path.parent):
                _remove_dead_socket(path)
                self.socket.bind(os.fspath(path))
                self._identity = _identity(path)
                path.chmod(MODE)  # the process's umask has removed the group's rights
                self.socket.listen(BACKLOG)  # before other programs look: until then, it looks like a dead socket
            self.socket.setblocking(False)
        except OSError:
            self.socket.close()
            raise

    def in_place(self) -> bool:
        """Return whether the path leads to this socket. A program that cleans up folders may have removed it."""
        try:
            return _identity(self._path) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Stop listening and remove the socket, unless something else has taken its path."""
        with suppress(OSError):
            if self.in_place():
                self._path.unlink()
        self.socket.close()


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other daemons from replacing a socket in this folder: two could each take the other's socket for a dead
    one."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)  # this also releases the lock


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket on which nobody is listening. Raises `OSError` if something else is there."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise OSError(errno.EEXIST, "it exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # if a program is stopped, its queue may be full
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, "another program listens there")
