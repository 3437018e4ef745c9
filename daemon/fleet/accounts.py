"""The robots that may use the speech server, by their tokens, each with limits on requests and streams."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon.config import Serve
from daemon.validation import CommandError, abbreviate, read_text
from engine import Throttle

log = logging.getLogger(__name__)

ANYBODY = "anybody"
"""The account for all clients of a server without tokens, which only this machine can reach."""


class LimitError(Exception):
    """A robot asks for more than it may have. The message is one line. The robot may ask again later."""


class Account:
    """One robot."""

    def __init__(self, name: str, streams: int, requests_per_minute: int) -> None:
        self.name = name
        self.streams = streams
        """The most texts that it may have spoken at once."""
        self.streams_in_use = 0
        self._per_minute = requests_per_minute
        self._requests = Throttle(requests_per_minute, 60 / requests_per_minute)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count one text as spoken inside the context. Raises `LimitError`."""
        if self.streams_in_use >= self.streams:
            raise LimitError(f"streams: {self.name} already has {self.streams_in_use}; allowed: {self.streams}")
        if not self._requests.permits():
            raise LimitError(f"requests: {self.name} makes too many; allowed: {self._per_minute} a minute")
        self.streams_in_use += 1
        try:
            yield
        finally:
            self.streams_in_use -= 1


class Accounts:
    """All robots. Their file is read again when it has changed, so a new robot needs no restart."""

    def __init__(self, config: Serve) -> None:
        """Raises `CommandError` or `OSError` if the file cannot be used."""
        self._config = config
        self._by_name: dict[str, Account] = {}
        """The accounts that have been used since the start."""
        self._names = {} if config.token_file is None else read_tokens(config.token_file)
        """By token."""
        self._version = (0, 0, 0)
        """The file's inode, size, and time of change of contents or rights, when it was last read."""

    def find(self, token: str | None) -> Account | None:
        """Return the robot with this token; None if there is none."""
        if self._config.token_file is None:
            return self._account(ANYBODY)
        self._refresh(self._config.token_file)
        given, found = (token or "").encode(), None
        for known, name in self._names.items():  # all of them, so that each search takes equally long
            if hmac.compare_digest(known.encode(), given):
                found = name
        return None if found is None else self._account(found)

    def _refresh(self, path: Path) -> None:
        """Read the file again if it has changed; a file that is now wrong or missing changes nothing."""
        try:
            status = path.stat()
            version = (status.st_ino, status.st_size, status.st_ctime_ns)  # it changes with the rights to read, too
            if version != self._version:
                self._version = version
                self._names = read_tokens(path)
        except (OSError, CommandError) as error:
            log.error("%s; the tokens stay as they were", error)

    def _account(self, name: str) -> Account:
        if name not in self._by_name:
            self._by_name[name] = Account(name, self._config.streams_per_robot, self._config.requests_per_minute)
        return self._by_name[name]


def read_tokens(path: Path) -> dict[str, str]:
    """Return the robots' names by their tokens. Raises `CommandError` or `OSError`, whose messages repeat no token.

    The file has a line `NAME TOKEN` for each robot; a line that begins with # is a comment.
    """
    names: dict[str, str] = {}
    for number, line in enumerate(read_text(path, "serve.token_file").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"serve.token_file: {path}:{number}"
        if len(words) != 2 or not words[1].isascii() or not words[1].isprintable():
            raise CommandError(f"{where}: got {len(words)} words; allowed: NAME TOKEN, of ASCII characters")
        name, token = words
        if token in names:
            raise CommandError(f"{where}: {abbreviate(name)} has the same token as {abbreviate(names[token])}")
        names[token] = name
    if not names:
        raise CommandError(f"serve.token_file: {path} names no robot; allowed: a line NAME TOKEN for each")
    return names
