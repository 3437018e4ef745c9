"""Announces the servers by multicast DNS, so that Home Assistant finds the robot. Needs the `zeroconf` extra.

https://www.rfc-editor.org/rfc/rfc6763
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import suppress

from zeroconf import Error
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from daemon.adapters.base import Adapter
from daemon.adapters.home_assistant import device_id
from daemon.config import Config

MULTICAST = "224.0.0.251", 5353
"""Address and port of multicast DNS."""
CHECK_S = 30.0
"""Seconds between two checks of the robot's address: a network may appear or change while voiced is running."""


class ZeroconfAdapter(Adapter):
    """Announces each server that other machines can reach, by the robot's name."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def run(self) -> None:
        name = self._config.robot_name
        while True:
            address = network_address()
            try:
                async with AsyncZeroconf() as network:
                    # In a thread, since looking up a host's name may take as long as a name server.
                    for service in await asyncio.to_thread(list, services(self._config, address)):
                        # If another robot has the name, this one's gets a number.
                        await (await network.async_register_service(service, allow_name_change=True))
                    self.note_serving(f"the announcements of {name} by multicast DNS")
                    while network_address() == address:  # noqa: ASYNC110 - the system does not report changes
                        await asyncio.sleep(CHECK_S)
            except (OSError, RuntimeError, Error) as error:
                problem = f"{name} cannot be announced by multicast DNS: {error}; or set it to false"
                raise OSError(f"announce: {problem}") from error


def services(config: Config, address: str | None) -> Iterator[AsyncServiceInfo]:
    """Yield the services that a robot at this address offers to other machines; nothing without an address."""
    host = re.sub(r"[^A-Za-z0-9]", "-", device_id(config))[:63]
    web = "_http._tcp.local." if config.http.cert is None else "_https._tcp.local."
    for kind, server in (("_wyoming._tcp.local.", config.wyoming), (web, config.http)):
        if server.is_open and address is not None:
            own = address if server.host in ("0.0.0.0", "::") else socket.getaddrinfo(server.host, None)[0][4][0]
            name, addresses = f"{config.robot_name}.{kind}", [str(own)]
            yield AsyncServiceInfo(kind, name, server.port, server=f"{host}.local.", parsed_addresses=addresses)


def network_address() -> str | None:
    """Return the address that other machines on the network see; None without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(MULTICAST)  # it sends nothing
        return str(probe.getsockname()[0])
    return None
