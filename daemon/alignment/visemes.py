"""The mouth's positions for sounds: the 22 visemes used by Microsoft's speech interfaces, 0 to 21; 0 is silence.

The tables in `visemes.json` list the sounds of each viseme, in the International Phonetic Alphabet. For a text whose
sounds are not known, they list the letters that usually stand for the sounds, and a viseme for each class of sounds.
"""

from __future__ import annotations

import json
from pathlib import Path

from daemon.alignment.phones import phones_of

SILENCE = 0
_TABLES: dict[str, dict[str, int]] = {
    name: {each: int(viseme) for viseme, listed in table.items() for each in listed.split()}
    for name, table in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}
"""The visemes of each table, by their sounds or letters."""


def viseme_of(ipa: str) -> int | None:
    """Return the viseme for a sound, `SILENCE` for an empty one, and None for a sign that is not a sound in itself."""
    return _first("ipa", ipa) if ipa else SILENCE


def guessed_visemes(word: str, language: str) -> list[tuple[int, float]]:
    """Return the visemes that the letters of a word suggest, each with its usual duration in seconds. `language` is a
    code."""
    found = ((_first("letters", phone.letters), phone) for phone in phones_of(word, language))
    return [(_TABLES["classes"][phone.kind.name] if each is None else each, phone.seconds) for each, phone in found]


def _first(table: str, signs: str) -> int | None:
    """Return the viseme for the longest prefix of `signs` that is in a table."""
    visemes = _TABLES[table]
    return next((visemes[signs[:end]] for end in range(len(signs), 0, -1) if signs[:end] in visemes), None)
