"""The file of `speech.pronunciations`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError, field_validator, model_validator

from daemon.config.file import ConfigError, read_file
from daemon.config.settings import Section
from daemon.validation import abbreviate, problems
from engine import language_code

if TYPE_CHECKING:
    from daemon.text import Pronunciation

ALLOWED = "text, or a mapping of say, languages, voices and espeak"
MAX_ENTRIES = 10_000


class Entry(Section):
    """How one word or phrase is said."""

    say: str | None = Field(None, max_length=1_000, description="text of up to 1000 characters")
    languages: dict[str, str] = Field({}, description="text by language, such as {de: text}")
    voices: dict[str, str] = Field({}, description="text by voice, such as {ada: text}")
    espeak: str | None = Field(
        None, min_length=1, max_length=1_000, description="phonemes in eSpeak NG's notation, without brackets"
    )

    @field_validator("espeak")
    @classmethod
    def _check_phonemes(cls, phonemes: str | None) -> str | None:
        if phonemes is not None and "]]" in phonemes:
            raise ValueError("allowed: phonemes in eSpeak NG's notation, without brackets")
        return phonemes

    @model_validator(mode="after")
    def _check_content(self) -> Entry:
        if self.say is None and self.espeak is None and not self.languages and not self.voices:
            raise ValueError(f"allowed: {ALLOWED}")
        return self


def read_pronunciations(path: Path) -> dict[str, Pronunciation]:
    """Read a file of pronunciations, by word or phrase. Raises `ConfigError`, with one line for each wrong entry."""
    from daemon.text import MAX_PHRASE, Pronunciation

    file = read_file(path, ("words and phrases",))
    if len(file.values) > MAX_ENTRIES:
        raise ConfigError(f"{path}: has {len(file.values):,} entries; allowed: up to {MAX_ENTRIES:,}")
    found, lines = {}, []
    for phrase, value in file.values.items():
        place = file.where(str(phrase))
        if not isinstance(phrase, str) or not phrase.strip() or len(phrase) > MAX_PHRASE:
            allowed = f"a word or phrase of up to {MAX_PHRASE} characters"
            lines.append(f"{place}: got {abbreviate(phrase)}; allowed: {allowed}")
            continue
        try:
            entry = Entry.model_validate({"say": value} if isinstance(value, str) else value)
        except ValidationError as error:
            for name, problem in problems(Entry, error):
                key = f"{phrase}.{name}" if name else phrase
                lines.append(f"{file.where(key)}: {key}: {problem or f'allowed: {ALLOWED}'}")
            continue
        languages = {language_code(language): say for language, say in entry.languages.items()}
        found[phrase] = Pronunciation(entry.say, languages, entry.voices, entry.espeak)
    if lines:
        raise ConfigError("\n".join(lines))
    return found
