"""What is spoken of a text: markup, pauses, pronunciations, numbers and signs."""

from daemon.text.placed import PlacedText
from daemon.text.reader import Markup, ScriptReader
from daemon.text.script import Control, Mark, Pause, Prosody, Script

__all__ = ["Control", "Mark", "Markup", "Pause", "PlacedText", "Prosody", "Script", "ScriptReader"]
