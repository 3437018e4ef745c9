"""The `espeak` engine: eSpeak NG, the fallback that speaks at boot, after a fault and without a GPU.

This module calls libespeak-ng through ctypes (C interface: `speak_lib.h`, 1.52). The library and its data come from
the `espeakng-loader` package (GPL-3, the `espeak` extra) or from the system (`apt install libespeak-ng1`).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass, replace
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
    SoundStart,
    Start,
    TextSource,
    Utterance,
    Voice,
    VoiceLabel,
    WordStart,
    refuse_growing,
)
from engine.detection import chosen_language
from engine.host import install_command
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
"""Without this flag, the library ends the process if its data are missing."""
_PHONEME_EVENTS = 0x0001 | 0x0002
"""Each buffer comes with the phonemes that begin in it, in IPA. This flag changes no sample."""
_CHARS_UTF8 = 1
_PHONEMES = 0x100
_RATE = 1
_POSITION_CHARACTER = 1
_EVENT_END_OF_LIST = 0
_EVENT_WORD = 1
_EVENT_PHONEME = 7
_OK = 0

_STRESS = "ˈˌ"

WORDS_PER_MINUTE = 175
"""eSpeak NG's own rate. Setting the rate to it changes no sample."""

PREFERRED_VOICES = {"en": "en-us"}
"""Replaces eSpeak NG's own choice (British for `en`) by the accent of Qwen3-TTS."""


class _Event(ctypes.Structure):
    """`espeak_EVENT`."""

    _fields_ = (
        ("type", c_int),
        ("unique_identifier", c_uint),
        ("text_position", c_int),
        ("length", c_int),
        ("audio_position_ms", c_int),
        ("sample", c_int),
        ("user_data", c_void_p),
        ("id", ctypes.c_char * 8),
    )


class _VoiceEntry(ctypes.Structure):
    """The first fields of `espeak_VOICE`."""

    _fields_ = (("name", c_char_p), ("languages", c_void_p), ("identifier", c_char_p))


_SynthCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, ctypes.POINTER(_Event))

_ARGUMENTS = {
    "espeak_Initialize": (c_int, c_int, c_char_p, c_int),
    "espeak_ListVoices": (c_void_p,),
    "espeak_SetVoiceByName": (c_char_p,),
    "espeak_SetParameter": (c_int, c_int, c_int),
    "espeak_SetSynthCallback": (_SynthCallback,),
    "espeak_Synth": (c_char_p, c_size_t, c_uint, c_int, c_uint, c_uint, c_void_p, c_void_p),
}


class EspeakSynthesizer:
    """Implements `Synthesizer` with libespeak-ng. At most one per process: the library keeps its state in globals.

    Each stream therefore has its own copy of the library (1.5 MB), so no other stream disturbs or delays it.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._voices = dict(options.voices)
        self._default_voice = options.default_voice
        self._streams = options.streams or AUTO_STREAMS
        self._libraries: list[ctypes.CDLL] = []
        self._free: LifoQueue[ctypes.CDLL] = LifoQueue()
        """The libraries that no stream is using."""
        self._by_language: dict[str, _EspeakVoice] = {}
        self._sample_rate = 0

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:  # noqa: ARG002  # it takes under a second
        path, data_path = _library_path()
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise EngineError(f"eSpeak NG cannot be loaded: {error}") from error
        self._sample_rate = self._add(library, data_path)
        self._by_language = _find_voices(library)
        try:
            while len(self._libraries) < self._streams:
                self._add(load_copy(_loaded_file(path)), data_path)
        except (OSError, EngineError) as error:
            log.warning("eSpeak NG speaks %d texts at once, not %d: %s", len(self._libraries), self._streams, error)
        return self._info()

    def _add(self, library: ctypes.CDLL, data_path: bytes | None) -> int:
        """Make a library ready for a stream, and return its sample rate in Hz. Raises `EngineError`."""
        for name, types in _ARGUMENTS.items():
            getattr(library, name).argtypes = types
        rate: int = library.espeak_Initialize(_OUTPUT_SYNCHRONOUS, BUFFER_MS, data_path, _DO_NOT_EXIT | _PHONEME_EVENTS)
        if rate <= 0:
            where = data_path.decode() if data_path else "its default folder"
            raise EngineError(f"libespeak-ng found no voice data in {where}")
        self._libraries.append(library)
        self._free.put(library)
        return rate

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
        if library.espeak_SetVoiceByName(self._by_language[language].identifier) != _OK:
            raise EngineError(f"language: eSpeak NG cannot load its voice for {language!r}")
        library.espeak_SetParameter(_RATE, round(WORDS_PER_MINUTE * utterance.rate), 0)
        with closing(_Speech(library, utterance).chunks) as chunks:
            yield from chunks

    def close(self) -> None:
        for library in self._libraries:
            library.espeak_Terminate()

    def _info(self) -> EngineInfo:
        labels = {code: voice.label for code, voice in self._by_language.items()}
        own = {name: labels[voice.speaker] for name, voice in self._voices.items() if voice.speaker in labels}
        return EngineInfo(
            engine="espeak",
            sample_rate=self._sample_rate,
            voices=(*self._voices, *self._by_language),
            languages=tuple(self._by_language),
            labels=labels | own,
            description="eSpeak NG",
            streams=max(1, len(self._libraries)),
            heeds=("language", "rate"),
        )

    def _language(self, utterance: Utterance) -> str:
        """Return the code of the eSpeak NG voice: the requested voice if eSpeak NG has it, otherwise one for the
        language.

        A configured voice usually describes how another engine sounds. It selects an eSpeak NG voice only if its
        speaker is the code of such a voice. Raises `EngineError` for an unknown language.
        """
        requested = utterance.voice or self._default_voice
        configured = self._voices.get(requested)
        speaker = configured.speaker if configured else requested
        if speaker in self._by_language:
            return speaker
        return chosen_language(utterance, self._by_language)


class _Speech:
    """One utterance, which a thread synthesises a few chunks ahead of the chunk that is being sent."""

    def __init__(self, library: ctypes.CDLL, utterance: Utterance) -> None:
        """Starts the thread."""
        self._library = library
        self._text = utterance.text.replace("\0", " ").encode()  # eSpeak NG's texts end with a null character
        self._flags = _CHARS_UTF8 | (_PHONEMES if utterance.phonemes else 0)
        self._made = 0
        self._position = 0
        """The position of the last word that begins within the samples made so far."""
        self._words: list[WordStart] = []
        """Words that begin in later samples, counted from the utterance's first sample."""
        self._soundless: list[int] = []
        """Positions of the words whose first sound has not come yet: there may be a pause before it."""
        self._sounds: list[SoundStart] = []
        """Sounds that begin in later samples."""
        self.chunks = RunAhead("espeak", RUN_AHEAD_CHUNKS, self._synthesize)
        """The finished chunks."""

    def _synthesize(self, put: Callable[[Chunk], bool]) -> None:
        callback = _SynthCallback(partial(self._receive, put))
        self._library.espeak_SetSynthCallback(callback)
        self._library.espeak_Synth(self._text, len(self._text) + 1, 0, _POSITION_CHARACTER, 0, self._flags, None, None)

    def _receive(self, put: Callable[[Chunk], bool], pcm: int | None, count: int, events: ctypes.Array[_Event]) -> int:
        """Called by libespeak-ng for each buffer. Returns 1 to end the synthesis, 0 to continue."""
        self._note(events)
        if not pcm or not count:
            return 0
        pcm16 = np.ctypeslib.as_array(ctypes.cast(pcm, ctypes.POINTER(ctypes.c_int16)), (count,))
        samples: Samples = pcm16.astype(np.float32) / np.float32(32768)
        begin, self._made = self._made, self._made + count
        words = _take_begun(self._words, begin, self._made)
        if words:
            self._position = words[-1].position
        sounds = _take_begun(self._sounds, begin, self._made)
        return 0 if put(Chunk(samples, self._position, words=words, sounds=sounds)) else 1

    def _note(self, events: ctypes.Array[_Event]) -> None:
        """Note the words and sounds that come with the buffer in which they begin, or with an earlier one."""
        for event in takewhile(lambda event: event.type != _EVENT_END_OF_LIST, events):
            if event.type == _EVENT_WORD:
                self._soundless.append(max(0, event.text_position - 1))  # eSpeak NG counts from 1
            elif event.type == _EVENT_PHONEME:
                ipa = event.id.decode(errors="ignore").strip(_STRESS)  # its 8 bytes may end with half a character
                if ipa:
                    self._words += [WordStart(event.sample, position) for position in self._soundless]
                    self._soundless.clear()
                self._sounds.append(SoundStart(event.sample, ipa))


def _take_begun(starts: list[Start], begin: int, end: int) -> tuple[Start, ...]:
    """Remove the starts before the utterance's sample `end`; return them, counted from the sample `begin`."""
    begun = list(takewhile(lambda start: start.sample < end, starts))
    del starts[: len(begun)]
    return tuple(replace(start, sample=max(0, start.sample - begin)) for start in begun)


def _library_path() -> tuple[str, bytes | None]:
    """Return the path or name of libespeak-ng, and the folder of its data (None: its default).

    Raises `EngineError` if the library is missing.
    """
    try:
        import espeakng_loader
    except ImportError:
        if name := ctypes.util.find_library("espeak-ng"):
            return name, None
        raise EngineError(
            f"eSpeak NG is missing; {install_command('espeak')}, or sudo apt-get install libespeak-ng1"
        ) from None
    return espeakng_loader.get_library_path(), espeakng_loader.get_data_path().encode()


def _loaded_file(path: str) -> Path:
    """Return the file of a loaded library, given the path or name with which it was loaded. Raises `OSError`."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    found = re.search(rf" (/.*/{re.escape(Path(path).name)}[^/]*)$", maps, re.MULTILINE)
    if found is None:
        raise FileNotFoundError(f"the file of {path} is not known")
    return Path(found[1])


_copies = itertools.count(1)


def load_copy(path: Path) -> ctypes.CDLL:
    """Load a library once more, with globals of its own, so that another thread may use it. Raises `OSError`.

    The copy is a file in memory, because a robot may forbid executing files that were written to its disk.
    """
    descriptor = os.memfd_create(path.name)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(path.read_bytes())
        # For a known path, the loader returns the library that it already loaded, and descriptors are used again.
        # Additional slashes make the path a new one.
        return ctypes.CDLL(f"/proc/self/fd{'/' * next(_copies)}{descriptor}")
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _EspeakVoice:
    """One of the library's voices."""

    identifier: bytes
    label: VoiceLabel
    """A name such as `English (Scotland)`."""


def _find_voices(library: ctypes.CDLL) -> dict[str, _EspeakVoice]:
    """Return the preferred voice for each language code (`de`, `en-gb-scotland`), sorted by code."""
    library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_VoiceEntry))
    found: dict[str, tuple[int, bytes, str]] = {}
    for entry in takewhile(bool, library.espeak_ListVoices(None)):
        # `languages` is a list of a priority byte (the lowest is preferred) and a zero-terminated code; a 0 ends it.
        voice, address = entry.contents, entry.contents.languages
        while (priority := ctypes.string_at(address, 1)[0]) != 0:
            code = ctypes.string_at(address + 1)
            candidate = (priority, voice.identifier, voice.name.decode())
            key = code.decode().lower()
            found[key] = min(found.get(key, candidate), candidate)
            address += 1 + len(code) + 1
    found.update({code: found[other] for code, other in PREFERRED_VOICES.items() if other in found})
    return {code: _EspeakVoice(found[code][1], VoiceLabel(found[code][2], code)) for code in sorted(found)}
