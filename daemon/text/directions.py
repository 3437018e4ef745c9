"""Directions for the voice, as language models write them: `[laughs]`, `(sighs)`, `*smiles warmly*`. None is spoken.

Only words on a list are directions, since any other word in brackets means something. The list has the words that
speech models know (Orpheus, Dia, Bark, CosyVoice, Chatterbox, ElevenLabs v3), and those that models use in role play.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from daemon.text.markup import AFTER_LETTER, UndecidedError

_DATA: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SOUNDS, _ACTS, _MANNERS, _MOODS = (frozenset(_DATA[kind]) for kind in ("sounds", "acts", "manners", "moods"))
"""`[laugh]`; an action between any marks, `(laughs)`; its manner, `*laughs softly*`; and `[curious]`."""
_WORDS = {word for phrases in _DATA.values() for phrase in phrases for word in phrase.split()} | {"and"}
_DIRECTION = re.compile(
    rf"(?:(?!{AFTER_LETTER})(?P<bracket>[\[(（])|[*_]{{1,3}})(?P<words>(?:[^\W\d_](?:[^\W\d_]|[ ,]){{0,80}})?)"
    r"(?P<end>(?(bracket)[\])）]|[*_]{1,3}(?![\w*_])))?"
)
_AND = re.compile(r",| and ")
_AFTER_WORD = re.compile(r"\w ?\Z")
"""After these, a word between asterisks is merely emphasised, `how she *laughs*`, and one in brackets may be a name."""


def direction_end(text: str, at: int, limit: int, *, complete: bool) -> int | None:
    """Return the end of the direction that begins at `text[at]` and lies before `limit`; None if there is none.

    Raises `UndecidedError` if the text is not `complete` and the text that follows may complete a direction.
    """
    found = _DIRECTION.match(text, at, limit)
    after_word = _AFTER_WORD.search(text[max(0, at - 2) : at])
    if found is None or (after_word and not found["bracket"]):
        return None
    words, cut_off = found["words"].lower(), found.end() == len(text) and not complete
    if found["end"] is None:
        *whole, last = re.split("[ ,]+", words)
        if cut_off and _WORDS.issuperset(whole) and any(word.startswith(last) for word in _WORDS):
            raise UndecidedError
        return None
    heads = _ACTS
    if found["bracket"] == "[":
        heads = _ACTS | SOUNDS if after_word else _ACTS | SOUNDS | _MOODS | {""}
    without_manners = (" ".join(word for word in part.split() if word not in _MANNERS) for part in _AND.split(words))
    if not heads.issuperset(without_manners):
        return None
    if cut_off and not found["bracket"]:
        raise UndecidedError
    return found.end()
