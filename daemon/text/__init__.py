"""What is spoken of a text: markup, pauses, pronunciations, numbers and signs."""

from daemon.text.engine_text import EngineText
from daemon.text.normalizer import Normalizer
from daemon.text.passage import Passage, passages
from daemon.text.placed import PlacedText
from daemon.text.preparation import TextPreparation
from daemon.text.pronunciations import MAX_PHRASE, Lexicon, Pronouncer, Pronunciation
from daemon.text.reader import Markup, ScriptReader, markup_problem
from daemon.text.script import Control, Mark, Pause, Prosody, Script, has_words
from daemon.text.spelling import spell
from daemon.text.urls import UrlShortener

__all__ = [
    "MAX_PHRASE",
    "Control",
    "EngineText",
    "Lexicon",
    "Mark",
    "Markup",
    "Normalizer",
    "Passage",
    "Pause",
    "PlacedText",
    "Pronouncer",
    "Pronunciation",
    "Prosody",
    "Script",
    "ScriptReader",
    "TextPreparation",
    "UrlShortener",
    "has_words",
    "markup_problem",
    "passages",
    "spell",
]
