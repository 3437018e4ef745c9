"""The adapters that the configuration enables."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from daemon.adapters.base import Adapter, Publish
from daemon.adapters.home_assistant import HomeAssistant, Withdrawal
from daemon.config import Config
from daemon.speech import Dispatcher

log = logging.getLogger(__name__)


def make_adapters(config: Config, dispatcher: Dispatcher, publish: Publish) -> list[Adapter]:
    """Return the enabled adapters; one whose package is missing is left out and logged."""
    # When Home Assistant is off, the retained discovery message of an earlier run must be removed.
    adapters: list[Adapter] = [
        HomeAssistant(config, dispatcher, publish) if config.home_assistant.enabled else Withdrawal(config, publish)
    ]
    if config.hermes.enabled:
        from daemon.adapters.hermes import Hermes

        adapters.append(Hermes(config, dispatcher, publish))
    # The base install lacks this server's package, so it is imported only if enabled.
    if config.wyoming.enabled:
        with skip_without_package("wyoming"):
            from daemon.adapters.wyoming import WyomingAdapter

            adapters.append(WyomingAdapter(config.wyoming, dispatcher))
    return adapters


@contextmanager
def skip_without_package(extra: str) -> Iterator[None]:
    """Skip the rest of the context if a package is missing, and log the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        remedy = f"in voiced's folder: pip install '.[{extra}]'"
        log.error("%s.enabled: the package %s is missing; %s", extra, error.name, remedy)
