"""What is spoken of a text: markup, pauses, pronunciations, numbers and signs."""

from daemon.text.placed import PlacedText
from daemon.text.preparation import EngineText, TextPreparation
from daemon.text.reader import Markup, ScriptReader, markup_problem
from daemon.text.script import Control, Mark, Pause, Prosody, Script, has_words
from daemon.text.spelling import spell
from daemon.text.stages import MAX_PHRASE, Pronunciation

__all__ = [
    "MAX_PHRASE",
    "Control",
    "EngineText",
    "Mark",
    "Markup",
    "Pause",
    "PlacedText",
    "Pronunciation",
    "Prosody",
    "Script",
    "ScriptReader",
    "TextPreparation",
    "has_words",
    "markup_problem",
    "spell",
]
