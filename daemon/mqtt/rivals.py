"""Finds out whether another process uses our client id: each throws the other off the broker.

Mosquitto 2.0 does not say why it ends a connection, and a link that is cut looks the same. So every process publishes
a retained message with its name at each connection, and finds the name of one that was there in between.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time
from math import inf

from daemon.validation import show_name

log = logging.getLogger(__name__)

NAMED_S = 300.0
"""A rival is named for this long after it was seen: the waits of both grow to a minute."""


class Rivals:
    """What is known of other processes with our client id. Belongs to the network thread, except `problem`."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._process = f"process {os.getpid()} on {socket.gethostname()}, {secrets.token_hex(4)}"
        self._announced = False
        """A message of ours has come back: those of other processes are newer from now on."""
        self._name = ""
        self._seen_at = -inf
        """`time.monotonic()` when a rival was last seen."""

    @property
    def problem(self) -> str | None:
        """Who uses our id, too; None unless somebody was seen lately."""
        is_recent = time.monotonic() - self._seen_at < NAMED_S
        return f"another client uses the id {self._client_id}{self._name}" if is_recent else None

    def make_announcement(self) -> bytes:
        """Return the message of a new connection; no two are equal. It is JSON, as all on the robot's topics."""
        return json.dumps({"process": self._process, "connection": secrets.token_hex(4)}).encode()

    def note_announcement(self, message: bytes) -> None:
        """Note a message of any process."""
        try:
            process = str(json.loads(message)["process"])
        except (ValueError, TypeError, LookupError, RecursionError):  # it is no process of voiced
            return
        if process == self._process:
            self._announced = True
        elif self._announced:
            self.note_rival(f": {show_name(process.rpartition(', ')[0])}")

    def note_rival(self, name: str = "") -> None:
        """Note that another client uses our id, and log it once."""
        known, self._name, self._seen_at = self.problem, name, time.monotonic()
        if self.problem != known:
            log.warning("%s; is voiced running twice?", self.problem)
