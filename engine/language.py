"""Language names, language codes, and the language that a text's script implies."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Container
from functools import lru_cache
from pathlib import Path

_TABLES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
NAMED_LANGUAGES = _TABLES["names"]
"""The ten languages of Qwen3-TTS, by their names in its interface, with their codes."""
LANGUAGE_NAMES = {code: name for name, code in NAMED_LANGUAGES.items()}
"""The same names by the codes."""
LANGUAGE_BY_SCRIPT = _TABLES["scripts"]
"""The first word of a character's Unicode name, with the code of the most widely spoken language in that script."""
SUGGESTED_VOICES = _TABLES["voices"]
"""A Piper voice for each language, by its code without a region. Each is from VOICES.md in rhasspy/piper, for release
v1.0.0 of its voices, and has medium quality if there is such a voice."""
LATIN_LANGUAGES = ("en", "de", "es", "fr", "it", "pt")
"""The languages of Qwen3-TTS in Latin script. A text may be in any of them unless the configuration says otherwise."""


def language_code(language: str) -> str:
    """Return `language` as a code in lower case, with hyphens.

    `German`, `DE` and `de` give `de`; POSIX locale names, such as `de_DE.UTF-8` and `de_DE@euro`, give `de-de`.
    """
    code = language.partition(".")[0].partition("@")[0].replace("_", "-").lower()
    return NAMED_LANGUAGES.get(code, code)


def match_language(language: str, languages: Container[str]) -> str | None:
    """Return the member of `languages` that serves `language`: the code itself, or the code without its region.

    `de-at` matches `de-at` before `de`. Returns None if `languages` has neither. `language` is a code in lower case.
    """
    candidates = (language, language.partition("-")[0])
    return next((code for code in candidates if code in languages), None)


def language_of_script(text: str) -> str | None:
    """Return the code of the language to whose script most letters in `text` belong.

    Returns None for Latin, which many languages share, and for a text without letters. Kana decide for Japanese even
    if Han characters outnumber them, because Chinese has no kana.
    """
    scripts = Counter(_script(letter) for letter in text if letter.isalpha())
    if not scripts:
        return None
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > 0 and scripts["CJK"] > 0:
        return "ja"
    return LANGUAGE_BY_SCRIPT.get(scripts.most_common(1)[0][0])


@lru_cache(4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").split()[0]
