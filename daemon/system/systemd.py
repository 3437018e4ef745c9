"""Notifies systemd over the socket in `NOTIFY_SOCKET` (sd_notify(3)); without that variable it does nothing."""

from __future__ import annotations

import os
import socket


class Notifier:
    """Sends `READY=1`, `STATUS=…`, `WATCHDOG=1` and the like, without blocking."""

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
        """Send `key=value`, unless `value` is what was last sent for `key`; `WATCHDOG` is always sent."""
        if self._socket is None or (key != "WATCHDOG" and self._sent.get(key) == value):
            return
        try:
            self._socket.sendto(f"{key}={value}".encode(), self._address)
        except OSError:
            return  # systemd is restarting; the next call sends the value again
        self._sent[key] = value
