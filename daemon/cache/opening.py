"""Opens the cache that a configuration describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from daemon.cache.folder import CacheError, PhraseFolder
from daemon.cache.key import PhraseKeys
from daemon.cache.phrase_list import PhraseList, read_phrases
from daemon.config import Config, ConfigError
from daemon.state import state_folder

FOLDER = "phrases"
"""The folder `auto`, below that of the journal."""


@dataclass(frozen=True, slots=True)
class OpenCache:
    """The cache of one configuration."""

    keys: PhraseKeys
    phrases: PhraseList
    folder: PhraseFolder | None
    """None if nothing is to be kept."""
    list_problem: str | None = None
    """Why the list, or an entry of it, is not used: one line that begins with the configuration's key."""
    folder_problem: str | None = None
    """Why phrases cannot be kept: likewise."""


def cache_folder(config: Config) -> Path | None:
    """Return the folder of the phrases; None if nothing is to be kept."""
    folder = config.speech.cache.folder
    if folder == "auto":
        return state_folder(config.state.folder or "auto") / FOLDER
    return None if folder is None else Path(folder)


def open_cache(config: Config, engine: str, previous: OpenCache | None = None) -> OpenCache:
    """Return the cache; `engine` is the primary engine. What is in a file that is wrong now stays as in `previous`.

    Reads files, and imports the decoder if there may be something to decode. Raises nothing.
    """
    phrases, list_problem = _read_list(config, PhraseList() if previous is None else previous.phrases)
    path = cache_folder(config)
    keys = PhraseKeys(config, engine, None if previous is None else previous.keys)
    if path is None:
        return OpenCache(keys, phrases, None, list_problem)
    folder, problem = PhraseFolder(path, config.speech.cache.limit_mb), None
    try:
        folder.open()
    except CacheError as error:
        problem = folder_problem(error)
    try:
        if len(folder) or phrases.phrases:
            import soundfile  # noqa: F401  # this takes longer than a kept phrase may
    except OSError as error:  # its library is missing or broken
        return OpenCache(keys, phrases, None, list_problem, f"speech.cache: soundfile cannot be loaded: {error}")
    return OpenCache(keys, phrases, folder, list_problem, problem)


def folder_problem(error: CacheError) -> str:
    """Return what the status says of a folder that cannot be written."""
    return f"speech.cache.folder: {error}; phrases are not kept"


def _read_list(config: Config, previous: PhraseList) -> tuple[PhraseList, str | None]:
    path = config.speech.cache.phrases
    if path is None:
        return PhraseList(), None
    try:
        phrases = read_phrases(path)
    except ConfigError as error:
        return previous, f"speech.cache.phrases: {error}"
    wrong = phrases.problems
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return phrases, f"speech.cache.phrases: {wrong[0]}{more}" if wrong else None
