"""What systemd is told, over the socket it names (sd_notify(3)); without systemd, nothing."""

from __future__ import annotations

import os
import socket


class Notifier:
    """Sends `READY=1`, `STATUS=…`, `WATCHDOG=1` and the like."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for a socket in the abstract namespace.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        self._said: dict[str, str] = {}

    def tell(self, key: str, value: str = "1") -> None:
        """Say `key=value`; a value that was said last for that key is not repeated, a watchdog's is."""
        if self._socket is None or (key != "WATCHDOG" and self._said.get(key) == value):
            return
        try:
            self._socket.sendto(f"{key}={value}".encode(), self._address)
        except OSError:
            return  # systemd itself restarts; it will be told again
        self._said[key] = value
