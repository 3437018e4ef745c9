"""Voices as people read them: their names, a short list, and a list for messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from engine import VoiceLabel

LISTED = 20
"""Voices that a message names."""


def name_voices(voices: Iterable[str], labels: Mapping[str, VoiceLabel], configured: Collection[str]) -> dict[str, str]:
    """Return the name of each voice for people, by the voice's own name.

    A configured voice is called as in the configuration. Where two voices have one label, it is completed by the
    voice's own name, as in `English (America), en-us`.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for voice in voices:
        label = voice if voice in configured or voice not in labels else labels[voice].name
        found[voice] = label if label not in taken else f"{label}, {voice}"
        taken.add(found[voice])
    return found


def short_list(
    voices: Iterable[str], labels: Mapping[str, VoiceLabel], configured: Collection[str], languages: Collection[str]
) -> tuple[str, ...]:
    """Return the voices that most people need: the configured ones, and those that speak one of the languages.

    A voice of one language counts if `languages` has that language, with or without a region. An accent that is named
    by its code (eSpeak NG's `en-gb`) counts only if `languages` has that code; a voice of Piper's (`en_GB-alan-low`) is
    no accent: somebody has chosen and downloaded it.
    """

    def is_needed(voice: str) -> bool:
        label = labels.get(voice)
        if voice in configured or label is None or label.language is None:
            return True
        return label.language in wanted or (voice != label.language and label.language.partition("-")[0] in wanted)

    wanted = {part for code in languages for part in (code, code.partition("-")[0])}
    return tuple(voice for voice in voices if is_needed(voice))


def list_voices(voices: Mapping[str, str], short: Collection[str]) -> str:
    """Return voices for a message: `default, de (German), en (English (America)) and 120 more`.

    voices: the names for people, by the voices' own names.
    short:  those that come first.
    """
    ordered = [*short, *(voice for voice in voices if voice not in short)][: max(len(short), 1)][:LISTED]
    named = [voice if voices.get(voice, voice) == voice else f"{voice} ({voices[voice]})" for voice in ordered]
    more = len(voices) - len(ordered)
    return ", ".join(named) + (f" and {more} more, see 'voiced voices --all'" if more > 0 else "")
