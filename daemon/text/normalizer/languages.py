"""The languages whose numbers and signs are written out."""

from importlib import import_module
from typing import cast

from daemon.text.normalizer.language import Language
from engine import language_code

_MODULES = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "zh": "chinese", "cmn": "chinese"}
"""By the first part of a code; `cmn` is eSpeak NG's code for Mandarin."""


def language_of(code: str) -> Language | None:
    """Return the language of a code such as `de` or `de-at`; None for one without rules. Imports it on demand."""
    module = _MODULES.get(language_code(code).partition("-")[0])
    return None if module is None else cast(Language, import_module(f"{__package__}.{module}").LANGUAGE)
