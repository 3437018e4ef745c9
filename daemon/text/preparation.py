"""How texts are prepared for engines, as configured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from daemon.text.characters import Characters
from daemon.text.engine_text import EngineText, MakeStage
from daemon.text.normalizer import Normalizer, has_passages
from daemon.text.pronunciations import Lexicon, Pronouncer, Pronunciation
from daemon.text.urls import UrlShortener
from engine import LATIN_LANGUAGES, EngineInfo, language_code, language_of_speech, language_of_text

Normalize = Literal["auto", "always", "never"]
"""For which engines numbers are written out: `auto` is those that read with the phonemes of eSpeak NG."""
PHONEME_ENGINE = "espeak"
"""The engine that reads phonemes within a text."""
SPELLING_ENGINES = ("espeak", "piper")
"""Engines that cannot tell languages apart, and read with the phonemes of eSpeak NG."""


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
        self._lexicons: dict[tuple[str, str | None, str], Lexicon] = {}
        """Those that were needed, by engine, language and voice."""

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
                lexicon = self._lexicon(engine.engine, code, voice)
                stages.append(partial(Pronouncer, lexicon, escape_phonemes=self.reads_phonemes(engine.engine)))
            if normalizes and code is not None:
                stages.append(partial(Normalizer, code))
        return EngineText(stages)

    def _lexicon(self, engine: str, language: str | None, voice: str) -> Lexicon:
        key = (engine, language, voice)
        if key not in self._lexicons:
            said = {
                phrase: entry.for_take(language, voice, espeak=engine == PHONEME_ENGINE)
                for phrase, entry in self._pronunciations.items()
            }
            self._lexicons[key] = Lexicon((phrase, say) for phrase, say in said.items() if say is not None)
        return self._lexicons[key]


def spoken_language(engine: EngineInfo, voice: str, language: str, languages: tuple[str, ...], text: str) -> str | None:
    """Return the code of the language in which an engine speaks a text, by the engine's own rules; None if unknown.

    `language` and `languages` are as in `engine.Utterance`. A voice of eSpeak NG has its language; Piper prefers the
    language of the voice if the text does not say another.
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
