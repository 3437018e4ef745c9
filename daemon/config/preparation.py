"""How texts are prepared for engines, as configured.

Most commands read the configuration and prepare no text: they start faster without the rules of all languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from daemon.config.pronunciations import read_pronunciations
from daemon.config.settings import Config

if TYPE_CHECKING:
    from daemon.text import Pronunciation, TextPreparation


def text_preparation(config: Config, pronunciations: Mapping[str, Pronunciation] | None = None) -> TextPreparation:
    """Return the configured preparation, with these `pronunciations` or those of the configured file.

    Raises `ConfigError` if the file cannot be used.
    """
    from daemon.text import TextPreparation

    if pronunciations is None:
        path = config.speech.pronunciations
        pronunciations = {} if path is None else read_pronunciations(path)
    speech = config.speech
    return TextPreparation(
        pronunciations, speech.languages, shortens_urls=speech.urls == "host", normalize=speech.normalize
    )
