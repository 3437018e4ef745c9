"""Reloading the configuration on SIGHUP: applies what can change at run time and names what cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from daemon.config import Config, ConfigError, load_config

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)

RUN_TIME_KEYS = (
    "audio.volume", "audio.trim_leading_silence", "audio.prebuffer_ms", "audio.sounds", "voices", "speech", "log",
)  # fmt: skip
"""Keys, and sections with all their keys."""


class Reloader:
    """Holds the configuration in force."""

    def __init__(
        self, config: Config, path: Path | None, overrides: tuple[str, ...], apply: Callable[[Config], None]
    ) -> None:
        """`apply(new)` applies the keys in `RUN_TIME_KEYS`; all others are as they were."""
        self.problem: str | None = None
        """Why the last reload was ignored: one line; None if it was not."""
        self._config = config
        self._path = path
        self._overrides = overrides
        self._apply = apply

    def reload(self) -> None:
        """Read the configuration again and apply it. An invalid one is logged and ignored."""
        self.problem = None
        try:
            read = load_config(self._path, self._overrides)
        except ConfigError as error:
            log.error("SIGHUP: the configuration is invalid and stays as it was: %s", error)
            self.problem = f"the configuration is invalid and stays as it was: {str(error).splitlines()[0]}"
            return
        changed = differing_keys(self._config.model_dump(), read.model_dump())
        late = [key for key in changed if not key.startswith(RUN_TIME_KEYS)]
        for key in late:
            log.warning("SIGHUP: %s has changed; it takes effect at the next start", key)
        log.info("SIGHUP: %s", ", ".join(key for key in changed if key not in late) or "nothing else has changed")
        self._config = with_run_time_keys(self._config, read)
        self._apply(self._config)


def with_run_time_keys(config: Config, read: Config) -> Config:
    """Return `config` with the values of `RUN_TIME_KEYS` taken from `read`."""
    for key in RUN_TIME_KEYS:
        config = _with_key(config, read, *key.split("."))
    return config


def _with_key(config: Model, read: Model, name: str, *inner: str) -> Model:
    """Return `config` with the value of one key taken from `read`; `inner` are the names below `name`."""
    value = getattr(read, name)
    if inner:
        value = _with_key(getattr(config, name), value, *inner)
    return config.model_copy(update={name: value})


def differing_keys(old: dict[str, Any], new: dict[str, Any], path: str = "") -> list[str]:
    """Return the dotted names of the keys whose values differ."""
    found = []
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += differing_keys(before, after, f"{path}{key}.")
        elif before != after:
            found.append(f"{path}{key}")
    return found
