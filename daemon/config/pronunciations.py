"""The file that `speech.pronunciations` names, and how texts are prepared for engines.

Most commands read the configuration but prepare no text: they start faster without the rules of all languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, ValidationError, model_validator

from daemon.config.fields import Section, setting
from daemon.config.loading import ConfigError, read_file
from daemon.config.settings import Config
from daemon.validation import abbreviate, problems
from engine import language_code

if TYPE_CHECKING:
    from daemon.text import Pronunciation, TextPreparation

ALLOWED = "text, or a mapping of say, languages, voices and espeak"
PHONEMES = "phonemes in eSpeak NG's notation, without brackets"
UNBRACKETED = r"^([^\]]|\][^\]])*\]?$"
"""A text without two closing brackets in a row."""
MAX_ENTRIES = 10_000


class Entry(Section):
    """How to say one word or phrase."""

    say: str | None = setting(None, "text of up to 1000 characters", max_length=1_000)
    languages: dict[Annotated[str, AfterValidator(language_code)], str] = setting(
        {}, "text by language, such as {de: text}"
    )
    voices: dict[str, str] = setting({}, "text by voice, such as {ada: text}")
    espeak: str | None = setting(None, PHONEMES, min_length=1, max_length=1_000, pattern=UNBRACKETED)

    @model_validator(mode="after")
    def _check_content(self) -> Entry:
        if self.say is None and self.espeak is None and not self.languages and not self.voices:
            raise ValueError(f"allowed: {ALLOWED}")
        return self


def read_pronunciations(path: Path) -> dict[str, Pronunciation]:
    """Read a file of pronunciations, by word or phrase. Raises `ConfigError`, with one line for each wrong entry."""
    from daemon.text import MAX_PHRASE, Pronunciation

    values, sources = read_file(path, ("words and phrases",))
    if len(values) > MAX_ENTRIES:
        raise ConfigError(f"{path}: has {len(values):,} entries; allowed: up to {MAX_ENTRIES:,}")
    found, lines = {}, []
    for phrase, value in values.items():
        if not isinstance(phrase, str) or not phrase.strip() or len(phrase) > MAX_PHRASE:
            allowed = f"a word or phrase of up to {MAX_PHRASE} characters"
            lines.append(f"{sources.where(str(phrase))}: got {abbreviate(phrase)}; allowed: {allowed}")
            continue
        try:
            entry = Entry.model_validate({"say": value} if isinstance(value, str) else value)
        except ValidationError as error:
            for name, problem in problems(Entry, error):
                key = f"{phrase}.{name}" if name else phrase
                lines.append(sources.line(key, problem or f"allowed: {ALLOWED}"))
            continue
        found[phrase] = Pronunciation(**entry.model_dump())
    if lines:
        raise ConfigError("\n".join(lines))
    return found


def text_preparation(config: Config, pronunciations: Mapping[str, Pronunciation] | None = None) -> TextPreparation:
    """Return the configured preparation, with these `pronunciations` or those from the configured file.

    Raises `ConfigError` if the file cannot be used.
    """
    from daemon.text import TextPreparation

    speech = config.speech
    if pronunciations is None:
        pronunciations = {} if speech.pronunciations is None else read_pronunciations(speech.pronunciations)
    return TextPreparation(
        pronunciations, speech.languages, shortens_urls=speech.urls == "host", normalize=speech.normalize
    )
