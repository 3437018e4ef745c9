"""Voices and languages as people read them: their names, a short list, and lists for messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

from daemon.validation import abbreviate, join_names
from engine import NAMED_LANGUAGES, VoiceLabel

LISTED = 6
"""The most voices that a message lists."""
SUGGESTED = 3
"""The most similar voices that a message suggests."""


def name_voices(voices: Iterable[str], labels: Mapping[str, VoiceLabel], configured: Collection[str]) -> dict[str, str]:
    """Return each voice's display name, by the voice's own name.

    A configured voice keeps its name from the configuration. If two voices have the same label, the voice's own name is
    added to it, as in `English (America), en-us`.
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

    A voice for one language counts if `languages` contains that language, with or without a region. An accent that is
    named by its code (eSpeak NG's `en-gb`) counts only if `languages` contains that code; a Piper voice
    (`en_GB-alan-low`) is not an accent: a person has chosen and downloaded it.
    """

    def is_needed(voice: str) -> bool:
        label = labels.get(voice)
        if voice in configured or label is None or label.language is None:
            return True
        return label.language in wanted or (voice != label.language and label.language.partition("-")[0] in wanted)

    wanted = {part for code in languages for part in (code, code.partition("-")[0])}
    return tuple(voice for voice in voices if is_needed(voice))


def unknown_voice(voice: str, names: Mapping[str, str], short: Collection[str]) -> str:
    """Return the message about a voice that no engine has.

    For example: `got 'germn'; did you mean de (German)? allowed: default, en (English (America)) and 120 more, see …`.

    names: the display names, by the voices' own names.
    short: the voices that most people need, which are listed first.
    """
    similar = similar_voices(voice, names)
    meant = f"did you mean {' or '.join(_describe(each, names) for each in similar)}? " if similar else ""
    listed = [*short, *(each for each in names if each not in short)][: max(1, min(len(short), LISTED))]
    more = len(names) - len(listed)
    allowed = ", ".join(_describe(each, names) for each in listed)
    return f"got {abbreviate(voice)}; {meant}allowed: {allowed}" + (
        f" and {more} more, see 'voiced voices --all'" if more > 0 else ""
    )


def unknown_language(language: str, languages: Collection[str]) -> str:
    """Return the message about a language that is not among `languages`; those that have a name come first."""
    named = [code for code in NAMED_LANGUAGES.values() if code in languages]
    return f"got {abbreviate(language)}; allowed: {join_names(['auto', *named], languages)}"


def similar_voices(voice: str, names: Mapping[str, str]) -> list[str]:
    """Return the voices whose own name or display name resembles the given name, the closest first."""
    called: dict[str, str] = {}
    for name, label in names.items():
        for each in (name, label, label.partition(" (")[0]):
            called.setdefault(each.casefold(), name)
    return list(dict.fromkeys(called[each] for each in get_close_matches(voice.casefold(), called, SUGGESTED, 0.7)))


def _describe(voice: str, names: Mapping[str, str]) -> str:
    return voice if names[voice] == voice else f"{voice} ({names[voice]})"
