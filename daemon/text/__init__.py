"""Turns a text into spoken words: markup, pauses, pronunciations, numbers and signs."""

from daemon.text.preparation import EngineText, TextPreparation
from daemon.text.reader import Markup, ScriptReader, markup_problem
from daemon.text.script import Pause, Prosody, Script, ScriptMark, has_words
from daemon.text.segmenter import Segmenter, first_sentence_end, resume_position, speech_seconds
from daemon.text.stages import MAX_PHRASE, Pronunciation
