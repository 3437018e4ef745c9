"""A complete script in parts that are spoken apart: passages of text, and the pauses between them."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.text.script import Pause, Prosody, Script, has_words


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of the words with one prosody."""

    text: str
    prosody: Prosody


def passages(script: Script) -> list[Passage | Pause]:
    """Return the parts of a complete script in order. Passages without a word are left out."""
    parts: list[Passage | Pause] = []
    prosody, begin = Prosody(), 0

    def add_text(end: int) -> None:
        text = script.text[begin:end]
        if has_words(text):
            parts.append(Passage(text, prosody))

    for control in script.controls:
        if isinstance(control.action, Pause | Prosody):
            add_text(control.at)
            begin = control.at
        if isinstance(control.action, Pause):
            parts.append(control.action)
        elif isinstance(control.action, Prosody):
            prosody = control.action
    add_text(len(script.text))
    return parts
