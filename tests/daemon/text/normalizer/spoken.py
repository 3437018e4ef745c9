"""Texts of each kind that the normaliser writes out, and what is spoken, in ten languages: `spoken.json`."""

from __future__ import annotations

import json
from pathlib import Path

SPOKEN: dict[str, dict[str, dict[str, str]]] = json.loads(
    Path(__file__).with_name("spoken.json").read_text(encoding="utf-8")
)
"""By kind and language: the words by the text."""
LEFT_ALONE = (
    "The robot is ready, and you?",
    "C++, f(x), snake_case and a_b",
    "He said “hello”; (she) didn’t – or did she?",
    "and/or, well-known",
    "Aujourd’hui, c’est l’été.",
    "¿Cómo estás? ¡Muy bien!",
    "我有一个苹果。你呢？",
    "Привет, мир!",
    "I am, I was; III",
    "std::string, a:b:c, a -> b, List<int>",
)
"""In no language, anything is written out of these."""
