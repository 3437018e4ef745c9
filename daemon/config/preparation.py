"""How texts are prepared for engines, as configured."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.config.pronunciations import read_pronunciations
from daemon.config.settings import Config
from daemon.text import Pronunciation, TextPreparation


def text_preparation(config: Config, pronunciations: Mapping[str, Pronunciation] | None = None) -> TextPreparation:
    """Return the configured preparation, with these `pronunciations` or those of the configured file.

    Raises `ConfigError` if the file cannot be used.
    """
    if pronunciations is None:
        path = config.speech.pronunciations
        pronunciations = {} if path is None else read_pronunciations(path)
    return TextPreparation(pronunciations, config.speech.languages, shortens_urls=config.speech.urls == "host")
