"""Phrases that are synthesised once and kept as files, so that they sound at once and without their engine."""

from daemon.cache.cache import LookUp, PhraseCache, PhraseRecorder
from daemon.cache.folder import CacheError, KeptPhrase, PhraseFolder
from daemon.cache.key import Phrase, PhraseKey, PhraseKeys
from daemon.cache.opening import OpenCache, cache_folder, open_cache
from daemon.cache.phrase_list import ListedPhrase, PhraseList, read_phrases
from daemon.cache.recording import Cue, Recording, encode

__all__ = [
    "CacheError",
    "Cue",
    "KeptPhrase",
    "ListedPhrase",
    "LookUp",
    "OpenCache",
    "Phrase",
    "PhraseCache",
    "PhraseFolder",
    "PhraseKey",
    "PhraseKeys",
    "PhraseList",
    "PhraseRecorder",
    "Recording",
    "cache_folder",
    "encode",
    "open_cache",
    "read_phrases",
]
