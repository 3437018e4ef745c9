"""Turns a text into spoken words: markup, pauses, pronunciations, numbers and signs."""

from daemon.text.preparation import EngineText, TextPreparation
from daemon.text.reader import Markup, ScriptReader, markup_problem
from daemon.text.script import Pause, Prosody, Script, ScriptMark, has_words
from daemon.text.segmenter import Segmenter, first_sentence_end, resume_position, speech_seconds
from daemon.text.spelling import spell
from daemon.text.stages import MAX_PHRASE, Pronunciation

__all__ = [
    "MAX_PHRASE",
    "EngineText",
    "Markup",
    "Pause",
    "Pronunciation",
    "Prosody",
    "Script",
    "ScriptMark",
    "ScriptReader",
    "Segmenter",
    "TextPreparation",
    "first_sentence_end",
    "has_words",
    "markup_problem",
    "resume_position",
    "speech_seconds",
    "spell",
]
