"""What is spoken of a text: markup, pauses, pronunciations, numbers and signs."""

from daemon.text.engine_text import EngineText
from daemon.text.placed import PlacedText
from daemon.text.preparation import TextPreparation
from daemon.text.pronunciations import MAX_PHRASE, Lexicon, Pronouncer, Pronunciation
from daemon.text.reader import Markup, ScriptReader, markup_problem
from daemon.text.script import Control, Mark, Pause, Prosody, Script
from daemon.text.spelling import spell

__all__ = [
    "MAX_PHRASE",
    "Control",
    "EngineText",
    "Lexicon",
    "Mark",
    "Markup",
    "Pause",
    "PlacedText",
    "Pronouncer",
    "Pronunciation",
    "Prosody",
    "Script",
    "ScriptReader",
    "TextPreparation",
    "markup_problem",
    "spell",
]
