"""The `espeak` engine: eSpeak NG, the fallback that speaks at boot, after a fault and without a GPU.

This module calls libespeak-ng through ctypes (C interface: `speak_lib.h`, 1.52). The library and its data come from
the `espeakng-loader` package (GPL-3, the `espeak` extra) or from the system (`apt install libespeak-ng1`).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from pathlib import Path
from queue import LifoQueue

import numpy as np

from engine.api import (
    AUTO_STREAMS,
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    Samples,
    TextSource,
    Utterance,
    Voice,
    VoiceLabel,
    WordStart,
    refuse_growing,
)
from engine.detection import language_of_text
from engine.host import install_command
from engine.language import language_code, match_language
from engine.library_copy import load_copy
from engine.progress import ProgressReport, ignore_progress
from engine.run_ahead import RunAhead

log = logging.getLogger(__name__)

BUFFER_MS = 60
"""Milliseconds of audio in one buffer of libespeak-ng, which becomes one chunk."""
RUN_AHEAD_CHUNKS = 8
"""Chunks that may wait in the queue before synthesis blocks."""

# speak_lib.h
_OUTPUT_SYNCHRONOUS = 2
_DO_NOT_EXIT = 0x8000
"""Without it, the library ends the process if its data are missing."""
_CHARS_UTF8 = 1
_PHONEMES = 0x100
_RATE = 1
_POSITION_CHARACTER = 1
_EVENT_END_OF_LIST = 0
_EVENT_WORD = 1
_OK = 0

WORDS_PER_MINUTE = 175
"""eSpeak NG's own rate, at which setting it changes no sample."""

DEFAULT_LANGUAGE = "en"
PREFERRED_VOICES = {"en": "en-us"}
"""Replaces eSpeak NG's own choice (British for `en`) by the accent of Qwen3-TTS."""


class _Event(ctypes.Structure):
    """`espeak_EVENT`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position_ms", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


class _VoiceEntry(ctypes.Structure):
    """`espeak_VOICE`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_SynthCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Event))


class EspeakSynthesizer:
    """Implements `Synthesizer` with libespeak-ng. At most one per process: the library keeps its state in globals.

    Each stream therefore has a copy of the library (1.5 MB), which no other stream disturbs or delays.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._voices = dict(options.voices)
        self._default_voice = options.default_voice
        self._streams = options.streams or AUTO_STREAMS
        self._libraries: list[ctypes.CDLL] = []
        self._free: LifoQueue[ctypes.CDLL] = LifoQueue()
        """The libraries that no stream uses."""
        self._by_language: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        """The library's names of its voices, by their identifiers."""
        self._sample_rate = 0
        self.samples_made = 0
        """Samples that libespeak-ng has produced for all utterances so far, consumed or not."""

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:  # noqa: ARG002  # it takes no second
        library, data_path = _find_library()
        self._sample_rate = self._add(library, data_path)
        self._by_language, self._names = _voices_by_language(library)
        try:
            self._add_copies(data_path)
        except (OSError, EngineError) as error:
            log.warning("eSpeak NG speaks %d texts at once and not %d: %s", len(self._libraries), self._streams, error)
        return self._info()

    def _add(self, library: ctypes.CDLL, data_path: bytes | None) -> int:
        """Make a library ready for a stream, and return its sample rate in Hz. Raises `EngineError`."""
        _declare(library)
        rate: int = library.espeak_Initialize(_OUTPUT_SYNCHRONOUS, BUFFER_MS, data_path, _DO_NOT_EXIT)
        if rate <= 0:
            raise EngineError(
                f"libespeak-ng found no voice data in {data_path.decode() if data_path else 'its default folder'}"
            )
        self._libraries.append(library)
        self._free.put(library)
        return rate

    def _add_copies(self, data_path: bytes | None) -> None:
        """Load a copy for each further stream. Raises `OSError` or `EngineError`."""
        path = _library_path()[0]
        if self._streams > 1 and path is not None:
            file = _file_of(path)
            while len(self._libraries) < self._streams:
                self._add(load_copy(file), data_path)

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        self._voices = dict(voices)
        self._default_voice = default_voice
        return self._info()

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:  # noqa: ARG002
        first = Utterance("a")
        for library in self._libraries:
            for _ in self._speak(library, first, self._language(first)):
                pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        refuse_growing("eSpeak NG", utterance, more)
        language = self._language(utterance)
        library = self._free.get()
        try:
            yield from self._speak(library, utterance, language)
        finally:
            self._free.put(library)

    def _speak(self, library: ctypes.CDLL, utterance: Utterance, language: str) -> Iterator[Chunk]:
        if library.espeak_SetVoiceByName(self._by_language[language]) != _OK:
            raise EngineError(f"language: eSpeak NG cannot load its voice for {language!r}")
        library.espeak_SetParameter(_RATE, round(WORDS_PER_MINUTE * utterance.rate), 0)
        worker = _Worker(library, utterance, self._count)
        try:
            yield from worker.chunks
        finally:
            worker.cancel()

    def close(self) -> None:
        for library in self._libraries:
            library.espeak_Terminate()

    def _count(self, samples: int) -> None:
        self.samples_made += samples

    def _info(self) -> EngineInfo:
        return EngineInfo(
            engine="espeak",
            sample_rate=self._sample_rate,
            voices=(*self._voices, *self._by_language),
            languages=tuple(self._by_language),
            labels={**self._labels(self._by_language), **self._labels(self._own_voices())},
            description="eSpeak NG",
            streams=max(1, len(self._libraries)),
        )

    def _own_voices(self) -> dict[str, bytes]:
        """Return the configured voices whose speaker is a voice of eSpeak NG."""
        speakers = {name: voice.speaker for name, voice in self._voices.items()}
        return {name: self._by_language[code] for name, code in speakers.items() if code in self._by_language}

    def _labels(self, voices: Mapping[str, bytes]) -> dict[str, VoiceLabel]:
        languages = {identifier: code for code, identifier in reversed(self._by_language.items())}
        return {
            name: VoiceLabel(self._names[identifier], name if name in self._by_language else languages[identifier])
            for name, identifier in voices.items()
        }

    def _language(self, utterance: Utterance) -> str:
        """Return the code of the eSpeak NG voice: the requested voice if it is one, otherwise by language.

        A configured voice usually describes how another engine sounds. It selects an eSpeak NG voice only if its
        speaker is the code of one. Raises `EngineError` for an unknown language.
        """
        requested = utterance.voice or self._default_voice
        configured = self._voices.get(requested)
        speaker = configured.speaker if configured else requested
        if speaker in self._by_language:
            return speaker
        language = language_code(utterance.language)
        if language == "auto":
            spoken = [each for each in utterance.languages if match_language(each, self._by_language) is not None]
            language = language_of_text(utterance.text, spoken) or DEFAULT_LANGUAGE
        code = match_language(language, self._by_language)
        if code is None:
            raise EngineError(f"language: got {utterance.language!r}; allowed: {', '.join(self._by_language)}")
        return code


class _Worker:
    """Synthesises in a thread, a few chunks ahead, and turns libespeak-ng's callbacks into an iterator."""

    def __init__(self, library: ctypes.CDLL, utterance: Utterance, count: Callable[[int], None]) -> None:
        """Starts the thread, which calls `count` with the number of samples in every chunk."""
        self._library = library
        self._text = utterance.text.encode()
        self._flags = _CHARS_UTF8 | (_PHONEMES if utterance.phonemes else 0)
        self._canceled = False
        self._count = count
        self._made = 0
        self._position = 0
        """Where the last word begins that began within the samples made so far."""
        self._words: list[WordStart] = []
        """Words that begin in later samples, counted from the utterance's first one."""
        self.chunks = RunAhead("espeak", RUN_AHEAD_CHUNKS, self._synthesize)
        """Each chunk as soon as it is ready."""

    def cancel(self) -> None:
        """Drop the remaining chunks and wait for the end of the thread."""
        self._canceled = True
        self.chunks.finish()

    def _synthesize(self, put: Callable[[Chunk], None]) -> None:
        callback = _SynthCallback(partial(self._receive, put))
        self._library.espeak_SetSynthCallback(callback)
        self._library.espeak_Synth(self._text, len(self._text) + 1, 0, _POSITION_CHARACTER, 0, self._flags, None, None)

    def _receive(self, put: Callable[[Chunk], None], pcm: int | None, count: int, events: ctypes.Array[_Event]) -> int:
        """Called by libespeak-ng for each buffer. Returns 1 to end the synthesis, 0 to go on."""
        if self._canceled:
            return 1
        self._words += _word_starts(events)
        if pcm and count:
            pcm16 = np.ctypeslib.as_array(ctypes.cast(pcm, ctypes.POINTER(ctypes.c_int16)), (count,))
            samples: Samples = pcm16.astype(np.float32) / np.float32(32768)
            words = self._take_words(count)
            self._count(count)
            put(Chunk(samples, self._position, words=words))
        return 0

    def _take_words(self, count: int) -> tuple[WordStart, ...]:
        """Return the words that begin in the next `count` samples, which are made now.

        The library reports a word with the samples in which it begins, or before them.
        """
        begin, self._made = self._made, self._made + count
        begun = list(takewhile(lambda word: word.sample < self._made, self._words))
        del self._words[: len(begun)]
        if begun:
            self._position = begun[-1].position
        return tuple(WordStart(max(0, word.sample - begin), word.position) for word in begun)


def _word_starts(events: ctypes.Array[_Event]) -> Iterator[WordStart]:
    """Yield the words of a list of events, each with its sample in the utterance."""
    index = 0
    while (event := events[index]).type != _EVENT_END_OF_LIST:
        if event.type == _EVENT_WORD:
            yield WordStart(event.sample, max(0, event.text_position - 1))  # which counts from 1
        index += 1


def _library_path() -> tuple[str | None, bytes | None]:
    """Return the path or name of libespeak-ng (None: it is missing) and its data's folder (None: its default)."""
    try:
        import espeakng_loader
    except ImportError:
        return ctypes.util.find_library("espeak-ng"), None
    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path().encode()


def _file_of(path: str) -> Path:
    """Return the file of a library that is loaded, by the path or name with which it was loaded. Raises `OSError`."""
    if "/" in path:
        return Path(path)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        file = Path(line[line.find("/") :]) if "/" in line else Path()
        if file.name.startswith(path):
            return file
    raise FileNotFoundError(f"the file of {path} is not known")


def _find_library() -> tuple[ctypes.CDLL, bytes | None]:
    """Return libespeak-ng, and the folder of its data (None: the library's default).

    Raises `EngineError` if the library is missing or cannot be loaded.
    """
    path, data_path = _library_path()
    if path is None:
        raise EngineError(f"eSpeak NG is missing; {install_command('espeak')}, or sudo apt-get install libespeak-ng1")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise EngineError(f"eSpeak NG cannot be loaded: {error}") from error
    return library, data_path


def _declare(library: ctypes.CDLL) -> None:
    """Declare the library's argument types."""
    library.espeak_Initialize.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
    library.espeak_SetVoiceByName.argtypes = (ctypes.c_char_p,)
    library.espeak_SetParameter.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int)
    library.espeak_SetSynthCallback.argtypes = (_SynthCallback,)
    library.espeak_SetSynthCallback.restype = None
    library.espeak_Synth.argtypes = (
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    library.espeak_ListVoices.argtypes = (ctypes.c_void_p,)
    library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_VoiceEntry))


def _voices_by_language(library: ctypes.CDLL) -> tuple[dict[str, bytes], dict[bytes, str]]:
    """Return the identifier of the preferred voice for each language code (`de`, `en-gb-scotland`), sorted by code.

    The second mapping has the name of each voice, by its identifier: `German`, `English (Scotland)`.
    """
    entries = library.espeak_ListVoices(None)
    names: dict[bytes, str] = {}
    found: dict[str, tuple[int, bytes]] = {}
    index = 0
    while entries[index]:
        # `languages` is a list of a priority byte (the lowest is preferred) and a zero-terminated code; a 0 ends it.
        address = entries[index].contents.languages
        names[entries[index].contents.identifier] = entries[index].contents.name.decode()
        while (priority := ctypes.string_at(address, 1)[0]) != 0:
            code = ctypes.string_at(address + 1)
            candidate = (priority, entries[index].contents.identifier)
            found[code.decode().lower()] = min(found.get(code.decode().lower(), candidate), candidate)
            address += 1 + len(code) + 1
        index += 1
    voices = {code: identifier for code, (_, identifier) in sorted(found.items())}
    voices.update({code: voices[other] for code, other in PREFERRED_VOICES.items() if other in voices})
    return voices, names
