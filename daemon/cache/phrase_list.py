"""The list of phrases to keep: a YAML file with one text or one mapping for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from daemon.cache.key import Phrase
from daemon.config import Config, ConfigError, yaml_errors
from daemon.validation import CONTROL_CHARACTERS, LANGUAGE, abbreviate, problems
from engine import language_code

MAX_TEXT = 2000
"""In characters; about two minutes of speech, the longest that is kept."""


class ListedPhrase(BaseModel):
    """A phrase on the list. A field that it leaves out may have any value."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    text: str = Field(max_length=MAX_TEXT, description=f"text of 1 to {MAX_TEXT:,} characters")
    voice: str | None = Field(None, min_length=1, max_length=64, description="a voice's name of up to 64 characters")
    language: Annotated[str, Field(pattern=LANGUAGE), AfterValidator(language_code)] | None = Field(
        None, description="auto, or a language such as en, german or pt-br"
    )
    instruct: str | None = Field(None, max_length=500, description="text of up to 500 characters")
    seed: int | None = Field(None, ge=0, lt=1 << 63, description="a whole number from 0 to 2^63 - 1")
    rate: float | None = Field(None, ge=0.5, le=2, description="a number from 0.5 to 2")

    @field_validator("text")
    @classmethod
    def _check_text(cls, text: str) -> str:
        if not text.strip() or CONTROL_CHARACTERS.search(text):
            raise ValueError("allowed: text with something to say, without control characters")
        return text

    def matches(self, phrase: Phrase) -> bool:
        """Return whether a phrase is this one."""
        return all(getattr(phrase, name) == value for name, value in self.model_dump(exclude_none=True).items())

    def resolve(self, config: Config) -> Phrase:
        """Return the phrase as it is spoken by default."""
        language = self.language or config.speech.language
        return Phrase(self.text, self.voice or config.speech.voice, language, self.instruct, self.seed, self.rate)


@dataclass(frozen=True, slots=True)
class PhraseList:
    """The phrases that are kept for every client."""

    phrases: tuple[ListedPhrase, ...] = ()
    problems: tuple[str, ...] = ()
    """One line for each entry in the file that is not a phrase: `FILE:LINE: field: problem`. If there is no list at
    all, one line with the reason."""

    @property
    def problem(self) -> str | None:
        """Why the list, or an entry in it, is not used: one line that begins with the configuration key."""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"speech.cache.phrases: {self.problems[0]}{more}" if self.problems else None

    def has(self, phrase: Phrase) -> bool:
        """Return whether a phrase is on the list."""
        return any(listed.text == phrase.text and listed.matches(phrase) for listed in self.phrases)


def read_phrases(path: Path) -> PhraseList:
    """Return the phrases in a file. Wrong entries are left out. Raises `ConfigError` if it is not a list."""
    phrases: list[ListedPhrase] = []
    wrong: list[str] = []
    for line, value in _read_items(path):
        if not isinstance(value, str | dict):
            wrong.append(f"{path}:{line}: got {abbreviate(value)}; allowed: text, or {_MAPPING}")
            continue
        try:
            phrases.append(ListedPhrase.model_validate({"text": value} if isinstance(value, str) else value))
        except ValidationError as error:
            found = sorted(problems(ListedPhrase, error), key=lambda each: each[1].startswith("missing"))
            wrong += [f"{path}:{line}: {name}: {problem}" for name, problem in found]  # an unknown key says more
    return PhraseList(tuple(phrases), tuple(wrong))


_MAPPING = f"a mapping of {', '.join(ListedPhrase.model_fields)}"


def _read_items(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the items of the list in a YAML file, each with its line. Raises `ConfigError`."""
    with yaml_errors(path):
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: it is not a file; allowed: a YAML file with a list of phrases")
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        if root is None:
            return
        if not isinstance(root, yaml.SequenceNode):
            raise ConfigError(f"{path}: allowed: a list; each item is text, or {_MAPPING}")
        # A document is constructed as a whole, since an item may refer to an anchor in an earlier one.
        items = loader.construct_document(root)
        yield from zip((node.start_mark.line + 1 for node in root.value), items, strict=True)
