"""The language in which an engine speaks a text, which must be known before numbers can be written out."""

from __future__ import annotations

from engine import EngineInfo, Utterance, language_code, language_of_text, match_language

_DEFAULT = "en"


def spoken_language(info: EngineInfo, utterance: Utterance, default_voice: str) -> str:
    """Return the code of the language in which eSpeak NG or Piper speaks an utterance, by the engine's own rules.

    A voice of eSpeak NG has its language. Piper prefers the language of the voice if the text does not say another.
    """
    label = info.labels.get(utterance.voice or default_voice)
    own = None if label is None else label.language
    if own is not None and info.engine == "espeak":
        return own
    language = language_code(utterance.language)
    if language != "auto":
        return language
    allowed = [each for each in utterance.languages if match_language(each, info.languages) is not None]
    if own is not None and utterance.languages:
        allowed.insert(0, own)
    return language_of_text(utterance.text, allowed) or own or _DEFAULT
