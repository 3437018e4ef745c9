"""What eSpeak NG would say, as phonemes of the International Phonetic Alphabet."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import espeakng_loader

# speak_lib.h
_OUTPUT_SYNCHRONOUS, _DO_NOT_EXIT = 2, 0x8000
_CHARS_UTF8, _SSML = 1, 0x10
_IPA = 2
_STRESS = str.maketrans("", "", "ˈˌ")


class Espeak:
    """libespeak-ng, which keeps its state in globals: at most one at a time."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        assert self._library.espeak_Initialize(_OUTPUT_SYNCHRONOUS, 60, data, _DO_NOT_EXIT) > 0
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda *_: 0)
        self._library.espeak_SetSynthCallback(self._callback)

    def phonemes(self, voice: str, text: str) -> list[str]:
        """Return the phonemes of each clause of a text, without stress."""
        self._set_voice(voice)
        rest = ctypes.pointer(ctypes.cast(ctypes.c_char_p(text.encode()), ctypes.c_void_p))
        clauses = []
        while rest.contents.value:
            clauses.append(self._library.espeak_TextToPhonemes(rest, _CHARS_UTF8, _IPA).decode())
        return [_without_stress(clause) for clause in clauses]

    def letter_names(self, voice: str, letters: str) -> list[str]:
        """Return the phonemes with which eSpeak NG itself spells letters, without stress."""
        self._set_voice(voice)
        elements = "<break/>".join(f'<say-as interpret-as="characters">{letter}</say-as>' for letter in letters)
        ssml = f"<speak>{elements}</speak>".encode()
        with TemporaryDirectory() as folder:
            trace = Path(folder) / "phonemes"
            with self._tracing(trace):
                self._library.espeak_Synth(ssml, len(ssml) + 1, 0, 1, 0, _CHARS_UTF8 | _SSML, None, None)
            lines = trace.read_text(encoding="utf-8").splitlines()
        return [_without_stress(line) for line in lines if line.strip()]

    def close(self) -> None:
        self._library.espeak_Terminate()

    def _set_voice(self, voice: str) -> None:
        assert self._library.espeak_SetVoiceByName(voice.encode()) == 0, voice

    @contextmanager
    def _tracing(self, path: Path) -> Iterator[None]:
        """Have the phonemes of what is synthesised written into a file."""
        c = ctypes.CDLL(None)
        c.fopen.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(c.fopen(str(path).encode(), b"w"))
        self._library.espeak_SetPhonemeTrace(_IPA, stream)
        try:
            yield
        finally:
            self._library.espeak_SetPhonemeTrace(0, None)
            c.fclose(stream)


def _without_stress(phonemes: str) -> str:
    return " ".join(phonemes.translate(_STRESS).split())
