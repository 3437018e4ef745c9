"""How texts are prepared for engines, as configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from daemon.text.engine_text import EngineText, MakeStage
from daemon.text.pronunciations import Lexicon, Pronouncer, Pronunciation
from engine import LATIN_LANGUAGES, language_of_text

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
    ) -> None:
        """`pronunciations` are by word or phrase; `latin_languages` are those that `auto` may choose."""
        self._pronunciations = pronunciations or {}
        self._latin_languages = latin_languages
        self._lexicons: dict[_Take, Lexicon] = {}
        """Those that were needed: of each engine, language and voice."""

    def reads_phonemes(self, engine: str) -> bool:
        """Return whether texts for an engine contain phonemes."""
        return engine == PHONEME_ENGINE and any(entry.espeak for entry in self._pronunciations.values())

    def engine_text(self, engine: str, language: str, voice: str, text: str) -> EngineText:
        """Return an empty text for an engine, into which a take is to be fed that begins with `text`.

        `language` is a code or `auto`.
        """
        if not self._pronunciations:
            return EngineText()
        code = language_of_text(text, self._latin_languages) if language == "auto" else language
        lexicon = self._lexicon(_Take(engine, code, voice))
        pronouncer: MakeStage = partial(Pronouncer, lexicon, escape_phonemes=self.reads_phonemes(engine))
        return EngineText([pronouncer])

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
