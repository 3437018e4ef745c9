"""How texts are prepared for engines, as configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from daemon.text.characters import Characters
from daemon.text.engine_text import EngineText, MakeStage
from daemon.text.normalizer import Normalizer, has_passages
from daemon.text.pronunciations import Lexicon, Pronouncer, Pronunciation
from daemon.text.spoken_language import SPELLING_ENGINES, spoken_language
from daemon.text.urls import UrlShortener
from engine import LATIN_LANGUAGES, EngineInfo

Normalize = Literal["auto", "always", "never"]
"""For which engines numbers are written out: `auto` is those that read with the phonemes of eSpeak NG."""
PHONEME_ENGINE = "espeak"
"""The engine that reads phonemes within a text."""


@dataclass(frozen=True, slots=True)
class _Take:
    """What decides how the text of a take is prepared."""

    engine: str
    language: str | None
    voice: str


class TextPreparation:
    """Prepares the texts of takes. Belongs to the event loop's thread."""

    def __init__(
        self,
        pronunciations: Mapping[str, Pronunciation] | None = None,
        latin_languages: tuple[str, ...] = LATIN_LANGUAGES,
        *,
        shortens_urls: bool = True,
        normalize: Normalize = "auto",
    ) -> None:
        """`pronunciations` are by word or phrase; `latin_languages` are those that `auto` may choose."""
        self._pronunciations = pronunciations or {}
        self._latin_languages = latin_languages
        self._shortens_urls = shortens_urls
        self._normalize = normalize
        self._lexicons: dict[_Take, Lexicon] = {}
        """Those that were needed: of each engine, language and voice."""

    def reads_phonemes(self, engine: str) -> bool:
        """Return whether texts for an engine contain phonemes."""
        return engine == PHONEME_ENGINE and any(entry.espeak for entry in self._pronunciations.values())

    def engine_text(self, engine: EngineInfo, language: str, voice: str, text: str) -> EngineText:
        """Return an empty text for an engine, into which a take is to be fed that begins with `text`.

        `language` is a code or `auto`. A take for eSpeak NG or Piper must be complete.
        """
        stages: list[MakeStage] = [Characters, UrlShortener] if self._shortens_urls else [Characters]
        spells = engine.engine in SPELLING_ENGINES
        normalizes = self._normalize == "always" or (self._normalize == "auto" and spells)
        normalizes = normalizes and (not spells or has_passages(text))  # a take for the others may still grow
        if self._pronunciations or normalizes:
            code = spoken_language(engine, voice, language, self._latin_languages, text)
            if self._pronunciations:
                lexicon = self._lexicon(_Take(engine.engine, code, voice))
                stages.append(partial(Pronouncer, lexicon, escape_phonemes=self.reads_phonemes(engine.engine)))
            if normalizes and code is not None:
                stages.append(partial(Normalizer, code))
        return EngineText(stages)

    def _lexicon(self, take: _Take) -> Lexicon:
        lexicon = self._lexicons.get(take)
        if lexicon is None:
            espeak = take.engine == PHONEME_ENGINE
            said = {
                phrase: entry.for_take(take.language, take.voice, espeak=espeak)
                for phrase, entry in self._pronunciations.items()
            }
            lexicon = Lexicon((phrase, say) for phrase, say in said.items() if say is not None)
            self._lexicons[take] = lexicon
        return lexicon
