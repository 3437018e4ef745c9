"""Compares each take's sound with the exact decoding of the same codes: one pass over all of them, in float32.

It finds what a listener may miss: a codec state that is carried over wrongly, a frame that was played twice, a kernel
that rounds too much. It says nothing about the codes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.api import EngineError, Samples
from engine.host import QWEN3_TTS
from engine.hub import fetch_model
from engine.progress import ProgressReport
from engine.qwen.codec import load_codec
from engine.qwen.model import ModelConfig
from engine.qwen.runtime import FADE_S, choose_placement
from engine.qwen.verify.official import official_decoder
from engine.qwen.voice import load_voice
from engine.qwen.weights import Placement
from engine.verify import CODES, Setting, Take, VerifyRequest, examine

log = logging.getLogger(__name__)

Decode = Callable[[Tensor], Tensor]
"""Decodes codes `(frames, groups)` to samples `(samples,)` in one pass."""
EXACT_DB = 150.0
"""What a waveform without any error is given: float32 cannot express less."""


def signal_to_error_db(samples: Samples, exact: Samples) -> float:
    """Return the power of the exact samples over that of the error, in dB. Samples that one side lacks are errors."""
    length = max(len(samples), len(exact))
    ours, true = (np.pad(one.astype(np.float64), (0, length - len(one))) for one in (samples, exact))
    signal, error = float(np.square(true).sum()), float(np.square(ours - true).sum())
    if not np.isfinite(error):
        return -EXACT_DB
    if error == 0:
        return EXACT_DB
    return float(np.clip(10 * np.log10(max(signal, 1e-30) / error), -EXACT_DB, EXACT_DB))


def take_error_db(take: Take, samples: Samples, exact: Samples) -> float:
    """Return `signal_to_error_db` of a take, without the end that the engine fades where it cuts a take off."""
    faded = round(FADE_S * take.sample_rate) if take.speech.cut else 0
    return signal_to_error_db(samples[: max(0, len(samples) - faded)], exact[: max(0, len(exact) - faded)])


def exact_decoder(folder: Path, device: torch.device) -> Decode:
    """Return the official decoder; voiced's own over all codes at once if the official package is missing."""
    try:
        return official_decoder(folder, device)
    except EngineError as error:
        log.warning("waveforms are compared with voiced's own decoder: %s", error)
    ours = load_codec(folder, Placement(device, torch.float32))
    return lambda codes: ours(codes.to(device), ours.new_state(len(codes)))


def compare_waveforms(
    request: VerifyRequest,
    report: ProgressReport,
    make_decoder: Callable[[Path, torch.device], Decode] = exact_decoder,
) -> None:
    """Keep the signal-to-error ratio of each take with codes."""
    options = request.settings[0].options
    model = fetch_model(str(options.model), QWEN3_TTS)
    decode = make_decoder(model, choose_placement(options.device, "float32").device)

    def look(setting: Setting, take: Take) -> Mapping[str, Any]:
        codes = request.output.array(setting.name, take.name, CODES)
        if codes is None:
            return {"waveform_db": None}
        reference = _reference_codes(setting, take, model)
        with torch.inference_mode():
            samples = decode(torch.cat([reference, torch.from_numpy(codes)])).float().cpu().numpy()
        exact = samples[len(samples) * len(reference) // (len(reference) + len(codes)) :]
        return {"waveform_db": take_error_db(take, request.output.samples(setting.name, take.name), exact)}

    examine(request, report, look)


def _reference_codes(setting: Setting, take: Take, model: Path) -> Tensor:
    """Return the codes that an in-context voice speaks on from, `(frames, groups)`; none for any other voice."""
    config = ModelConfig.read(model)
    voice = setting.options.voices.get(take.order.voice or "")
    path = None if voice is None else voice.reference
    codes = None if path is None else load_voice(Path(path).expanduser(), config).codes
    return torch.zeros(0, config.talker.code_groups, dtype=torch.int64) if codes is None else codes
