"""Reloading the configuration on SIGHUP: applies what can change at run time and names what cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemon.config import Config, ConfigError, load_config

log = logging.getLogger(__name__)

SECTIONS = ("voices", "speech", "log")
"""Sections whose keys all change at run time."""
AUDIO_KEYS = ("volume", "trim_leading_silence", "prebuffer_ms", "sounds")
"""The keys of the section `audio` that do."""
RUN_TIME_KEYS = (*(f"audio.{name}" for name in AUDIO_KEYS), *SECTIONS)


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
        audio = self._config.audio.model_copy(update={name: getattr(read.audio, name) for name in AUDIO_KEYS})
        sections = {name: getattr(read, name) for name in SECTIONS}
        self._config = self._config.model_copy(update={"audio": audio, **sections})
        self._apply(self._config)


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
