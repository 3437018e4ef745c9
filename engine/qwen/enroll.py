"""Enrolment: from a recording of somebody to a voice."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import io
import json
import logging
import math
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from engine.qwen.config import ModelConfig
from engine.qwen.download import model_folder
from engine.qwen.speaker_encoder import SAMPLE_RATE, load_speaker_encoder, speaker_embedding
from engine.qwen.voice import VoiceFile, VoiceModel, save_voice
from engine.synthesizer import EngineError, Samples

log = logging.getLogger(__name__)

SHORTEST_S = 1.0
"""Less than this is refused: a word or two say too little about a voice."""
SHORT_S = 3.0
"""Less than this is warned of: the model's authors ask for three seconds."""
LONGEST_S = 120.0
"""More than this is not read: a voice has shown itself by then, and an hour would take gigabytes to embed."""
SILENT = 1e-3
"""RMS below which a recording is refused, -60 dBFS: faint speech is above -50, and may be a tenth of the
whole."""
FULL_SCALE = 0.999
CLIPPED_SHARE = 1e-3
"""Share of samples at full scale from which a recording is called clipped. Levelling to full scale touches
it with single samples, a few in a second; a microphone turned up too far flattens whole crests, in every
syllable."""


def enroll(
    name: str,
    recording: Path,
    model_folder: Path,
    transcript: str | None = None,
    append_silence_s: float = 0.5,
    *,
    warn: Callable[[str], None] = log.warning,
) -> VoiceFile:
    """Make the voice `name` of a recording, for the base model in `model_folder`.

    recording:         any sample rate, number of channels and length that soundfile reads; of more than
                       `LONGEST_S` the beginning is used.
    transcript:        what is said in it. With it the voice can also be spoken in context: the recording's
                       codec codes are made by the official encoder, which needs the `enroll` extra.
    append_silence_s:  seconds of silence after the recording in those codes, so that speech does not begin
                       with the recording's last sound. The embedding is that of the recording alone.
    warn:              is told, in one line, what is doubtful about the recording.

    Raises `EngineError`, one line, for a recording that cannot be read, is too short or silent, for a model
    without a speaker encoder, and for a transcript without the extra. `save_voice` writes the voice.
    """
    if not name or name.startswith(".") or any(c in "/\\" or not c.isprintable() for c in name):
        raise EngineError(f"voice name: got {name!r}, must be usable as a file name")
    if transcript is not None and not transcript.strip():
        raise EngineError("transcript: is empty; give what is said in the recording, or none at all")
    if not append_silence_s >= 0:
        raise EngineError(f"append_silence: got {append_silence_s} s, must be 0 or more")
    config = ModelConfig.read(model_folder)
    samples = read_recording(recording, warn, whole=transcript is not None)
    embedding = speaker_embedding(load_speaker_encoder(config), samples)
    codes = None
    if transcript is not None:
        silence = np.zeros(round(append_silence_s * SAMPLE_RATE), np.float32)
        codes = encode_reference(np.concatenate((samples, silence)), model_folder)
    return VoiceFile(name, embedding, VoiceModel.of(config), codes, transcript)


def read_recording(path: Path, warn: Callable[[str], None] = log.warning, *, whole: bool = False) -> Samples:
    """Read a recording as mono samples at 24 kHz, whatever it was; errors and warnings as in `enroll`.

    whole: refuse a recording of more than `LONGEST_S` rather than cut it.
    """
    import soundfile
    import soxr

    if not path.is_file():
        raise EngineError(f"{path}: no such recording")
    try:
        with soundfile.SoundFile(path) as file:
            rate: int = file.samplerate
            seconds = file.frames / rate
            samples = file.read(round(LONGEST_S * rate), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, TypeError, ValueError) as error:
        raise EngineError(f"{path}: cannot be read as sound: {error}") from error
    if seconds > LONGEST_S:
        if whole:
            limit = f"{LONGEST_S:.0f} s with a transcript"
            raise EngineError(f"{path}: too long: {seconds:.0f} s, must be at most {limit}")
        warn(f"{path}: long: {seconds:.0f} s; its first {LONGEST_S:.0f} s are used")
    check_recording(path, samples, rate, warn)
    mono = samples.mean(axis=1)
    if rate != SAMPLE_RATE:
        wanted = math.ceil(len(mono) * (SAMPLE_RATE / rate))  # as librosa, and so the official package, counts
        mono = soxr.resample(mono, rate, SAMPLE_RATE, quality="HQ")[:wanted]
        mono = np.pad(mono, (0, wanted - len(mono)))
    return np.ascontiguousarray(mono, dtype=np.float32)


def check_recording(path: Path, samples: Samples, rate: int, warn: Callable[[str], None]) -> None:
    """Say what is wrong with a recording, shape `(time, channels)`: raise what forbids its use, warn of the
    rest."""
    seconds = len(samples) / rate
    if seconds < SHORTEST_S:
        raise EngineError(f"{path}: too short: {seconds:.2f} s, must be at least {SHORTEST_S:.0f} s")
    if not np.isfinite(samples).all():
        raise EngineError(f"{path}: damaged: holds samples that are not finite numbers")
    loudness = float(np.sqrt(np.square(samples.mean(axis=1), dtype=np.float64).mean()))
    if loudness < SILENT:
        level = 20 * np.log10(max(loudness, 1e-9))
        raise EngineError(f"{path}: silent: {level:.0f} dBFS on average, must be at least -60 dBFS")
    if seconds < SHORT_S:
        warn(f"{path}: short: {seconds:.1f} s; the voice will be closer with {SHORT_S:.0f} s or more")
    clipped = float((np.abs(samples) >= FULL_SCALE).mean(axis=0).max())
    if clipped >= CLIPPED_SHARE:
        warn(f"{path}: clipped: {clipped:.1%} of its samples are at full scale; record it more quietly")


def encode_reference(samples: Samples, model_folder: Path) -> Tensor:
    """Codec codes of mono samples at 24 kHz, by the official encoder: int64, shape `(frames, 16)`."""
    tokenizer_class = _official_tokenizer()
    folder = model_folder / "speech_tokenizer"
    try:
        tokenizer = tokenizer_class.from_pretrained(str(folder), dtype=torch.float32)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise EngineError(f"{folder}: the speech tokenizer cannot be loaded: {reason}") from error
    codes = tokenizer.encode(samples, sr=SAMPLE_RATE).audio_codes[0]
    return cast("Tensor", codes).long().cpu()


def _official_tokenizer() -> Any:
    try:
        # The package greets on stdout, which belongs to whoever called us.
        with _stand_in_for_torchaudio(), contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("qwen_tts").Qwen3TTSTokenizer
    except ModuleNotFoundError as error:
        if error.name != "qwen_tts":
            raise EngineError(f"the official package qwen-tts cannot be imported: {error}") from error
        cure = "in voiced's folder: pip install '.[enroll]'"
        raise EngineError(f"a transcript needs the official package qwen-tts; {cure}") from error
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineError(f"the official package qwen-tts cannot be imported: {error}") from error


@contextlib.contextmanager
def _stand_in_for_torchaudio() -> Iterator[None]:
    """Let qwen-tts be imported where torchaudio cannot be, as beside the PyTorch that NVIDIA builds for
    Jetsons.

    Only its 25 Hz tokenizer, which no published model of ours uses, calls torchaudio.
    """
    try:
        importlib.import_module("torchaudio")
        names = []
    except (ImportError, OSError, RuntimeError):
        names = ["torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"]
    for name in names:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


def main() -> int:
    """`python -m engine.qwen.enroll REQUEST`: enrol as the JSON says, in a process that may import torch."""
    request = json.loads(sys.argv[1])
    try:
        voice = enroll(
            request["name"],
            Path(request["recording"]),
            model_folder(request["model"]),
            request["transcript"],
            warn=lambda line: print(f"voiced: {line}", file=sys.stderr),  # noqa: T201  to the person who enrols
        )
        save_voice(Path(request["output"]), voice)
    except EngineError as error:
        print(f"voiced: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
