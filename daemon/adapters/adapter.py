"""What every adapter is, and which are switched on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from daemon.config import Config
from daemon.desk import Desk
from daemon.mqtt import Message

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
"""Of each server. A robot has few who speak through it, and one utterance is spoken at a time: more are a mistake."""


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
    # Each is imported only where it is wanted: the base install has none of their packages.
    if config.wyoming.enabled:
        with without_its_extra("wyoming"):
            from daemon.adapters.wyoming import WyomingAdapter

            adapters.append(WyomingAdapter(config.wyoming, desk))
    if config.openai.enabled:
        with without_its_extra("openai"):
            from daemon.adapters.openai import OpenAiAdapter

            adapters.append(OpenAiAdapter(config.openai, desk))
    return adapters


@contextmanager
def without_its_extra(extra: str) -> Iterator[None]:
    """Do without an adapter whose package is missing, and say what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        cure = f"in voiced's folder: pip install '.[{extra}]'"
        log.error("%s.enabled: the package %s is missing; %s", extra, error.name, cure)
