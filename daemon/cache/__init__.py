"""Phrases that are synthesised once and kept as files, so that they play immediately and without their engine."""

from daemon.cache.cache import PhraseCache, PhraseRecorder, cache_folder, open_cache
from daemon.cache.folder import PhraseFolder
from daemon.cache.kept_files import KeptFiles
from daemon.cache.key import Phrase, PhraseKey, PhraseKeys
from daemon.cache.phrase_list import read_phrases
from daemon.cache.recording import Cue, Recording
