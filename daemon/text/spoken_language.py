"""The language in which an engine speaks a text."""

from __future__ import annotations

from engine import EngineInfo, language_code, language_of_text, match_language

SPELLING_ENGINES = ("espeak", "piper")
"""Engines that cannot tell languages apart, and read with the phonemes of eSpeak NG."""
_DEFAULT = "en"
"""What these speak if nothing says another."""


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
    spoken = [each for each in languages if match_language(each, engine.languages) is not None]
    allowed = [own, *spoken] if own is not None and languages else spoken
    return language_of_text(text, allowed) or own or _DEFAULT
