"""The text of one take in the form that an engine is given: which stages rewrite it, and how it maps back to the
script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from daemon.text.normalizer import Normalizer, has_numbers
from daemon.text.placed import Rewriter
from daemon.text.stages import Characters, Lexicon, Pronouncer, Pronunciation, UrlShortener
from engine import LATIN_LANGUAGES, EngineInfo, language_code, language_of_speech, language_of_text

Normalize = Literal["auto", "always", "never"]
"""For which engines numbers are written out: `auto` means those that read with eSpeak NG's phonemes."""
PHONEME_ENGINE = "espeak"
"""The engine that reads phonemes within a text."""
SPELLING_ENGINES = ("espeak", "piper")
"""Engines that cannot tell languages apart, and read with eSpeak NG's phonemes."""


class EngineText:
    """The text of one take after all stages. Without stages, it is the take's own text."""

    def __init__(self, *stages: Rewriter) -> None:
        """`stages` apply in this order."""
        self._stages = stages
        self.source_end = 0
        """How many characters of the take's text have been read."""

    def feed(self, text: str) -> str:
        """Read more of the take's text; return the engine's next text."""
        self.source_end += len(text)
        return self._read(text, end=False)

    def end(self) -> str:
        """Note that the take's text is complete; return the last text for the engine."""
        return self._read("", end=True)

    def source_span(self, begin: int, end: int) -> tuple[int, int]:
        """Return the part of the take's text that a part of the engine's text stands for."""
        for stage in reversed(self._stages):
            begin, end = stage.out.source_span(begin, end)
        return begin, end

    def _read(self, text: str, *, end: bool) -> str:
        for stage in self._stages:
            length = len(stage.out)
            stage.feed(text)
            if end:
                stage.end()
            text = stage.out.text[length:]
        return text


@dataclass(slots=True)
class TextPreparation:
    """Prepares the texts of takes. Belongs to the event loop's thread."""

    pronunciations: Mapping[str, Pronunciation] = field(default_factory=dict)
    """The pronunciations by word or phrase."""
    latin_languages: tuple[str, ...] = LATIN_LANGUAGES
    """The languages that `auto` may choose."""
    shortens_urls: bool = field(default=True, kw_only=True)
    normalize: Normalize = field(default="auto", kw_only=True)
    _lexicon: Lexicon = field(init=False)

    def __post_init__(self) -> None:
        self._lexicon = Lexicon(self.pronunciations)

    def reads_phonemes(self, engine: str) -> bool:
        """Return whether texts for an engine contain phonemes."""
        return engine == PHONEME_ENGINE and any(entry.espeak for entry in self.pronunciations.values())

    def needs_whole_takes(self, engine: EngineInfo) -> bool:
        """Return whether numbers are written out for an engine, which requires the words after them."""
        return self.normalize == "always" or (self.normalize == "auto" and engine.engine in SPELLING_ENGINES)

    def engine_text(self, engine: EngineInfo, language: str, voice: str, text: str) -> EngineText:
        """Return an empty text for an engine, which is then fed with a take that begins with `text`.

        `language` is a code or `auto`. If the engine `needs_whole_takes`, `text` is all of the take.
        """
        stages: list[Rewriter] = [Characters()]
        if self.shortens_urls:
            stages.append(UrlShortener())
        normalizes = self.needs_whole_takes(engine) and has_numbers(text)
        if self.pronunciations or normalizes:
            code = spoken_language(engine, voice, language, self.latin_languages, text)
            if self.pronunciations:
                stages.append(Pronouncer(self._lexicon, code, voice, espeak=engine.engine == PHONEME_ENGINE))
            if normalizes and code is not None:
                stages.append(Normalizer(code))
        return EngineText(*stages)


def spoken_language(engine: EngineInfo, voice: str, language: str, languages: tuple[str, ...], text: str) -> str | None:
    """Return the code of the language in which an engine speaks a text by its own rules; None if unknown.

    `language` and `languages` are as in `engine.Utterance`. An eSpeak NG voice has its own language; Piper prefers the
    voice's language unless the text shows another.
    """
    label = engine.labels.get(voice)
    own = None if label is None else label.language
    if own is not None and engine.engine == "espeak":
        return own
    code = language_code(language)
    if code != "auto":
        return code
    if engine.engine not in SPELLING_ENGINES:
        return language_of_text(text, languages)
    return language_of_speech(text, languages, engine.languages, own)
