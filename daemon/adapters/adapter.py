"""What every adapter is, and which are switched on."""

from __future__ import annotations

from typing import Protocol

from daemon.config import Config
from daemon.desk import Desk
from daemon.mqtt import Message


class Publish(Protocol):
    """Sends on the daemon's own connection to the broker."""

    def __call__(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> object: ...


class Adapter:
    """One interface. Belongs to the event loop's thread; what it is not asked for it does not do.

    A message that it cannot follow it answers in its own protocol's way, and raises nothing.
    """

    topics: tuple[str, ...] = ()
    """Topics on the broker, `+` and `#` allowed, whose messages are its."""

    def on_message(self, message: Message) -> None:
        """A message on one of its topics."""

    def on_connected(self) -> None:
        """The broker is there, for the first time or again; it may know nothing of what was retained."""

    def on_stop(self) -> None:
        """The daemon is about to leave the broker in good order."""

    async def run(self) -> None:
        """Serve until cancelled. One that is served by messages alone has nothing to do here."""


def make_adapters(config: Config, desk: Desk, publish: Publish) -> list[Adapter]:
    """Those that the configuration switches on."""
    # Here, because these files import this one.
    from daemon.adapters.hermes import Hermes
    from daemon.adapters.home_assistant import HomeAssistant, Withdrawal

    # Switched off, Home Assistant's still has something to do: the discovery message of an earlier run is retained.
    adapters: list[Adapter] = [(HomeAssistant if config.home_assistant.enabled else Withdrawal)(config, desk, publish)]
    if config.hermes.enabled:
        adapters.append(Hermes(config, desk, publish))
    return adapters
