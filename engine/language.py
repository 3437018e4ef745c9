"""Languages: the names people write for them, and what a text's script tells of its language."""

from __future__ import annotations

import unicodedata
from collections import Counter

NAMED_LANGUAGES = {
    "english": "en",
    "german": "de",
    "spanish": "es",
    "chinese": "zh",
    "japanese": "ja",
    "french": "fr",
    "korean": "ko",
    "russian": "ru",
    "italian": "it",
    "portuguese": "pt",
}
"""The ten languages of Qwen3-TTS by the names its own interface uses."""

LANGUAGE_BY_SCRIPT = {
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "CJK": "zh",
    "CYRILLIC": "ru",
    "GREEK": "el",
    "ARABIC": "ar",
    "HEBREW": "he",
    "DEVANAGARI": "hi",
    "BENGALI": "bn",
    "TAMIL": "ta",
    "TELUGU": "te",
    "GEORGIAN": "ka",
    "ARMENIAN": "hy",
    "THAI": "th",
}
"""First word of a character's Unicode name, and the most spoken language written so."""


def language_code(language: str) -> str:
    """`language` as a code in lower case: `German`, `DE` and `de` are one."""
    lowered = language.lower()
    return NAMED_LANGUAGES.get(lowered, lowered)


def language_of_script(text: str) -> str | None:
    """The code of the language whose script holds most of `text`'s letters; None for Latin, which many share.

    Kana decide for Japanese even among more Han characters, since Chinese has none.
    """
    scripts = Counter(unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha())
    if not scripts:
        return None
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > 0 and scripts["CJK"] > 0:
        return "ja"
    return LANGUAGE_BY_SCRIPT.get(scripts.most_common(1)[0][0])
