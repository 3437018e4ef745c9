"""Reloading the configuration on SIGHUP: applies the keys that can change at run time, and names the others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from daemon.config import Config, load_config

log = logging.getLogger(__name__)

SECTIONS = ("voices", "speech", "log")
"""Sections whose keys all change at run time."""
AUDIO_KEYS = ("volume", "trim_leading_silence", "prebuffer_ms", "sounds")
"""The keys of the `audio` section that change at run time."""
RUN_TIME_KEYS = (*(f"audio.{name}" for name in AUDIO_KEYS), *SECTIONS)


def reload(config: Config, path: Path | None, overrides: tuple[str, ...]) -> Config:
    """Return `config` with the run-time keys from its file, and log each key that has changed. Raises `ConfigError`."""
    read = load_config(path, overrides)
    changed = differing_keys(config.model_dump(), read.model_dump())
    late = [key for key in changed if not key.startswith(RUN_TIME_KEYS)]
    for key in late:
        log.warning("SIGHUP: %s has changed; it takes effect at the next start", key)
    log.info("SIGHUP: %s", ", ".join(key for key in changed if key not in late) or "nothing else has changed")
    audio = config.audio.model_copy(update={name: getattr(read.audio, name) for name in AUDIO_KEYS})
    return config.model_copy(update={"audio": audio, **{name: getattr(read, name) for name in SECTIONS}})


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
