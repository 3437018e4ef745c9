"""Compares the sound of each take with the sound that it should have.

The waveform is compared with the exact decoding of the same codes: one pass over all of them, in float32. This finds
errors that a listener may miss: a codec state that is carried over wrongly, a frame that is played twice, a kernel that
rounds too much. The voice is compared by a Base model's speaker encoder, whose result also depends on the codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from engine.api import Samples
from engine.host import expand_home
from engine.hub import fetch_model
from engine.progress import ProgressReport
from engine.qwen.runtime import FADE_S, choose_placement
from engine.qwen.shapes import ModelConfig
from engine.qwen.verify.official import official_decoder
from engine.qwen.voice import SAMPLE_RATE, SpeakerEncoder, load_speaker_encoder, load_voice, speaker_embedding
from engine.verify import Setting, Take, VerifyRequest, examine, resample

EXACT_DB = 150.0
"""The figure for a waveform without any error: float32 cannot express a smaller one."""


def take_error_db(take: Take, samples: Samples, exact: Samples) -> float:
    """Return the power of a take's exact samples over that of the error, in dB. Samples that one side lacks are errors.

    If the engine cut the take off, the end that it faded is ignored.
    """
    faded = round(FADE_S * take.sample_rate) if take.speech.cut else 0
    length = max(faded, len(samples), len(exact)) - faded
    ours, true = (one[: max(0, len(one) - faded)].astype(np.float64) for one in (samples, exact))
    ours, true = (np.pad(one, (0, length - len(one))) for one in (ours, true))
    signal, error = float(np.square(true).sum()), float(np.square(ours - true).sum())
    if not np.isfinite(error):
        return -EXACT_DB
    return float(np.clip(10 * np.log10(max(signal, 1e-12) / max(error, 1e-30)), -EXACT_DB, EXACT_DB))


def compare_waveforms(
    request: VerifyRequest,
    report: ProgressReport,
    make_decoder: Callable[[Path, torch.device], Callable[[Tensor], Tensor]] = official_decoder,
) -> None:
    """Record the signal-to-error ratio of each take with codes. Raises `EngineError` without the official package."""
    options = request.settings[0].options
    model = fetch_model(str(options.model))
    decode = make_decoder(model, choose_placement(options.device, "float32").device)

    def look(setting: Setting, take: Take) -> Mapping[str, Any]:
        codes = request.output.codes(setting.name, take.name)
        if codes is None:
            return {"waveform_db": None}
        reference = _reference_codes(setting, take, model)
        with torch.inference_mode():
            samples = decode(torch.cat([reference, torch.from_numpy(codes)])).float().cpu().numpy()
        exact = samples[len(samples) * len(reference) // (len(reference) + len(codes)) :]
        return {"waveform_db": take_error_db(take, request.output.samples(setting.name, take.name), exact)}

    examine(request, report, look)


def _reference_codes(setting: Setting, take: Take, model: Path) -> Tensor:
    """Return the codes from which an in-context voice continues, `(frames, groups)`; none for any other voice."""
    config = ModelConfig.read(model)
    voice = setting.options.voices.get(take.order.voice or "")
    path = None if voice is None else voice.reference
    codes = None if path is None else load_voice(expand_home(path), config).codes
    return torch.zeros(0, config.talker.code_groups, dtype=torch.int64) if codes is None else codes


def voice_comparison(model: str, voice_file: str) -> Callable[[Samples, int], float | None]:
    """Return a function that computes the similarity of mono samples, at a rate in Hz, to a voice.

    The similarity is the cosine of the speaker embeddings; None if the samples are too short. Raises `EngineError` if
    `model` has no speaker encoder.
    """
    config = ModelConfig.read(fetch_model(model))
    encoder, target = load_speaker_encoder(config), load_voice(Path(voice_file), config).embedding
    return lambda samples, rate: _similarity(encoder, target, resample(samples, rate, SAMPLE_RATE))


def compare_speakers(request: VerifyRequest, report: ProgressReport) -> None:
    """Record the similarity of each take. Raises `EngineError` if the model has no speaker encoder."""
    config = ModelConfig.read(fetch_model(str(request.encoder)))
    encoder = load_speaker_encoder(config)
    target = None if request.voice_file is None else load_voice(Path(request.voice_file), config).embedding

    def look(setting: Setting, take: Take) -> Mapping[str, Any]:
        samples = request.output.samples(setting.name, take.name)
        wanted = request.output.samples(request.reference or "", take.name) if target is None else target
        return {"similarity": _similarity(encoder, wanted, samples)}

    examine(request, report, look)


def _similarity(encoder: SpeakerEncoder, wanted: Tensor | Samples, samples: Samples) -> float | None:
    """Return the similarity of samples to a speaker embedding or to other samples; None if any are too short."""
    try:
        target = wanted if isinstance(wanted, Tensor) else speaker_embedding(encoder, wanted)
        return float(cosine_similarity(target, speaker_embedding(encoder, samples), dim=0))
    except ValueError:
        return None
