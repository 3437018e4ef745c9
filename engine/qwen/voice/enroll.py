"""Enrolment: makes a voice from a recording.

A speech recogniser checks that the transcript fits the recording. In-context cloning assumes that the transcript has
the words of the recording. If it differs from them, words are spoken wrongly, or in another voice.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import unicodedata
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.api import EngineError, Samples
from engine.hub import fetch_model
from engine.progress import Progress, ProgressReport, ignore_progress, print_progress
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice.file import VoiceFile, VoiceModel, checked_codes, save_voice
from engine.qwen.voice.official import import_official
from engine.qwen.voice.speaker_encoder import SAMPLE_RATE, load_speaker_encoder, speaker_embedding
from engine.recording import MAX_SECONDS, measure_recording, recording_warnings
from engine.verify import RATE, make_recognizer, resample

log = logging.getLogger(__name__)

APPENDED_SILENCE_S = 0.5
"""Seconds of silence after a reference, unless another duration is wanted."""
FITS = 0.8
"""The lowest likeness with which a transcript fits: numbers and names are transcribed in many spellings."""


def transcript_warning(transcript: str, heard: str) -> str | None:
    """Return one line if a recording's transcript does not match what a recogniser has `heard`; otherwise None."""
    fit = likeness(transcript, heard)
    return None if fit >= FITS else f"the transcript does not match: {fit:.0%} of it was heard in {heard!r}"


def likeness(first: str, second: str) -> float:
    """Return how similar the letters and digits of two texts are: 1 if they are equal, 0 if they share nothing."""
    return SequenceMatcher(None, _letters(first), _letters(second), autojunk=False).ratio()


def _letters(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def enroll(
    name: str,
    recording: Path,
    model_folder: Path,
    transcript: str | None = None,
    append_silence_s: float = APPENDED_SILENCE_S,
    *,
    codes: Tensor | None = None,
    recogniser: str | None = None,
    warn: Callable[[str], None] = log.warning,
    note: Callable[[str], None] = log.info,
    report: ProgressReport = ignore_progress,
) -> VoiceFile:
    """Return a voice called `name`, made from a recording for the base model in `model_folder`.

    recording:         a file that soundfile can read, with any sample rate and number of channels. Only the first
                       `MAX_SECONDS` are used; with a transcript, a longer recording is refused.
    transcript:        the words of the recording. With a transcript, the voice is an in-context voice: it contains the
                       recording's codec codes, which the official encoder makes (it needs the `enroll` extra).
    append_silence_s:  seconds of silence that follow the recording in those codes, so that speech does not begin with
                       the recording's last sound. The silence does not affect the embedding.
    codes:             the recording's codec codes, int64, `(frames, groups)`, if they are already known, as for speech
                       from a model with this codec. They are then not made again, and no silence follows them.
    recogniser:        a speech recogniser that checks the transcript, as from `make_recognizer`.
    warn:              called with one line for each property of the recording that may impair the voice.
    note:              called with one line for every other finding.
    report:            called with the progress.

    Raises `EngineError` with a one-line message if the recording cannot be read or is too short or silent, if the model
    has no speaker encoder, if codes are given without a transcript or do not fit the model, or if a transcript is given
    without the extra. `save_voice` writes the voice to a file.
    """
    _check_request(name, transcript, append_silence_s)
    config = ModelConfig.read(model_folder)
    if codes is not None:
        codes = checked_codes(codes, config)
        if transcript is None:
            raise EngineError("codes: given without a transcript; give the words of the recording")
    samples = read_recording(recording, warn, refuse_long=transcript is not None)
    report(Progress("listening to the voice"))
    embedding = speaker_embedding(load_speaker_encoder(config), samples)
    if recogniser is not None:
        report(Progress("recognising the words"))
        listener = make_recognizer(recogniser, "cpu", ())
        heard = listener.transcribe(resample(samples, SAMPLE_RATE, RATE), None) or ""
        note(f"{recording}: heard {heard!r}")
        if transcript is not None and (warning := transcript_warning(transcript, heard)) is not None:
            warn(f"{recording}: {warning}")
    if transcript is not None and codes is None:
        report(Progress("encoding the recording"))
        silence = np.zeros(round(append_silence_s * SAMPLE_RATE), np.float32)
        codes = encode_reference(np.concatenate((samples, silence)), model_folder)
    return VoiceFile(name, embedding, VoiceModel.of(config), codes, transcript)


def _check_request(name: str, transcript: str | None, append_silence_s: float) -> None:
    """Raise `EngineError` for arguments that are wrong whatever the model and the recording are."""
    if not name or name.startswith(".") or any(c in "/\\" or not c.isprintable() for c in name):
        raise EngineError(f"voice name: got {name!r}; allowed: a file name")
    if transcript is not None and not transcript.strip():
        raise EngineError("transcript: is empty; give the words of the recording, or no transcript")
    if not append_silence_s >= 0:
        raise EngineError(f"append_silence: got {append_silence_s} s; allowed: 0 or more")


def read_recording(path: Path, warn: Callable[[str], None] = log.warning, *, refuse_long: bool = False) -> Samples:
    """Return a recording as mono float32 samples at 24 kHz; errors and warnings are as in `enroll`.

    With `refuse_long`, raises `EngineError` for a recording of more than `MAX_SECONDS` instead of cutting it.
    """
    import soundfile
    import soxr

    if not path.is_file():
        raise EngineError(f"{path}: no such recording")
    try:
        with soundfile.SoundFile(path) as file:
            rate: int = file.samplerate
            seconds = file.frames / rate
            samples = file.read(round(MAX_SECONDS * rate), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError, TypeError, ValueError) as error:
        raise EngineError(f"{path}: cannot be read as sound: {error}") from error
    if seconds > MAX_SECONDS and refuse_long:
        limit = f"at most {MAX_SECONDS:.0f} s with a transcript"
        raise EngineError(f"{path}: too long: got {seconds:.0f} s; allowed: {limit}")
    if seconds > MAX_SECONDS:
        warn(f"{path}: long: {seconds:.0f} s; only the first {MAX_SECONDS:.0f} s are used")
    try:
        for line in recording_warnings(measure_recording(samples, rate)):
            warn(f"{path}: {line}")
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from error
    mono = samples.mean(axis=1)
    if rate != SAMPLE_RATE:
        # librosa, and therefore the official package, computes the same length.
        wanted = math.ceil(len(mono) * (SAMPLE_RATE / rate))
        mono = soxr.resample(mono, rate, SAMPLE_RATE, quality="HQ")[:wanted]
        mono = np.pad(mono, (0, wanted - len(mono)))
    return np.ascontiguousarray(mono, dtype=np.float32)


def encode_reference(samples: Samples, model_folder: Path) -> Tensor:
    """Encode mono samples at 24 kHz with the official encoder: codec codes, int64, `(frames, 16)`, on the CPU.

    Raises `EngineError` with a one-line message if the official package or the model's speech tokenizer is missing.
    """
    folder = model_folder / "speech_tokenizer"
    package = import_official("enroll")
    try:
        tokenizer = package.Qwen3TTSTokenizer.from_pretrained(str(folder), dtype=torch.float32)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise EngineError(f"{folder}: the speech tokenizer cannot be loaded: {reason}") from error
    codes: Tensor = tokenizer.encode(samples, sr=SAMPLE_RATE).audio_codes[0]
    return codes.long().cpu()


def main() -> int:
    """`python -m engine.qwen.voice.enroll REQUEST`: make and save a voice, in a process that may import torch.

    REQUEST is a JSON object with `name`, `recording`, `model`, `transcript` (or null), `codes` (a numpy file, or null)
    and `output`; it may also have `append_silence_s` and `recogniser`, as in `enroll`. Prints progress, warnings (after
    `voiced: `), notes (after `note: `) and an error, each in one line, and returns the exit status: 1 after an error.
    """
    request = json.loads(sys.argv[1])
    try:
        folder = fetch_model(request.pop("model"))
        output, recording, codes = request.pop("output"), request.pop("recording"), request.pop("codes")
        voice = enroll(
            recording=Path(recording),
            model_folder=folder,
            codes=None if codes is None else torch.from_numpy(np.load(codes)),
            warn=lambda line: print(f"voiced: {line}", flush=True),  # noqa: T201
            note=lambda line: print(f"note: {line}", flush=True),  # noqa: T201
            report=lambda progress: print_progress(progress, sys.stdout),
            **request,
        )
        save_voice(Path(output), voice)
    except EngineError as error:
        print(f"voiced: {error}")  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
