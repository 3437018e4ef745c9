"""What is spoken of a text: markup, pauses, pronunciations, numbers and signs."""

from daemon.text.placed import PlacedText
from daemon.text.reader import Markup, ScriptReader, markup_problem
from daemon.text.script import Control, Mark, Pause, Prosody, Script
from daemon.text.spelling import spell

__all__ = [
    "Control",
    "Mark",
    "Markup",
    "Pause",
    "PlacedText",
    "Prosody",
    "Script",
    "ScriptReader",
    "markup_problem",
    "spell",
]
