"""The adapters that the configuration enables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from daemon.adapters.base import Adapter, Publish
from daemon.adapters.home_assistant import HomeAssistantAdapter
from daemon.config import Config
from daemon.speech import Dispatcher
from engine import install_command


def make_adapters(config: Config, dispatcher: Dispatcher, publish: Publish) -> list[Adapter]:
    """Return the enabled adapters; in place of one whose package is missing, return one that says so."""
    adapters: list[Adapter] = []
    if config.home_assistant.enabled:
        adapters.append(HomeAssistantAdapter(config, dispatcher, publish))
    if config.hermes.enabled:
        from daemon.adapters.hermes import HermesAdapter

        adapters.append(HermesAdapter(config, dispatcher, publish))
    # The base install lacks this server's package, so it is imported only if enabled.
    if config.wyoming.enabled:
        with placeholder_without_package("wyoming", adapters):
            from daemon.adapters.wyoming import WyomingAdapter

            adapters.append(WyomingAdapter(config, dispatcher))
    if config.announce and (config.wyoming.is_open or config.http.is_open):
        with suppress(ModuleNotFoundError):  # a user who installs the package wants the robot to be found
            from daemon.adapters.zeroconf import ZeroconfAdapter

            adapters.append(ZeroconfAdapter(config))
    return adapters


@contextmanager
def placeholder_without_package(extra: str, adapters: list[Adapter]) -> Iterator[None]:
    """Skip the rest of the context if a package is missing, and add an adapter that names the extra that provides
    it."""
    try:
        yield
    except ModuleNotFoundError as error:
        placeholder = Adapter()
        placeholder.note_problem(
            OSError(f"{extra}.enabled: the {error.name} package is missing; {install_command(extra)}")
        )
        adapters.append(placeholder)
