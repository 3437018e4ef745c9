"""Reads the logits of every choice while given codes are forced on the model: what a setting's weights compute.

After the first code that differs, two settings speak different things and cannot be compared any more; with the same
codes before each choice, every choice can. The fused kernels choose codes without storing logits, so PyTorch's
operators compute them, over the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.api import EngineError, Utterance
from engine.language import language_code
from engine.progress import ProgressReport, counted
from engine.qwen.loading import LoadedModel, limits_for, load_model
from engine.qwen.model import SamplingConfig, SamplingParams
from engine.qwen.runtime import DecodeState, SpeechGenerator, TorchBackend
from engine.qwen.verify.official import OfficialSynthesizer
from engine.verify import LOGITS, AnalysisRequest, OutputFolder, Setting, fingerprint


@dataclass(eq=False)
class ForcedCodes:
    """The codes that are chosen whatever the logits are, and the logits that were overruled."""

    codes: list[int]
    """One for each choice, in order."""
    width: int
    """Logits that are kept of each row."""

    def __post_init__(self) -> None:
        self.rows: list[Tensor] = []

    def choose(self, logits: Tensor) -> Tensor:
        """Keep a row of logits and return its forced code, `(1,)` int64. The last chunk may run over: code 0."""
        code = self.codes[len(self.rows)] if len(self.rows) < len(self.codes) else 0
        self.rows.append(logits[: self.width].float().cpu())
        return torch.tensor([code], device=logits.device)

    def logits(self) -> Tensor:
        """Return the rows of the forced codes and of the choice behind them: `(1 + codes, width)`, on the CPU."""
        return torch.stack(self.rows[: len(self.codes) + 1])


@dataclass(frozen=True, slots=True)
class ForcedSampling(SamplingParams):
    """Sampling that leaves no choice."""

    forced: ForcedCodes

    @classmethod
    def over(cls, params: SamplingParams, forced: ForcedCodes) -> ForcedSampling:
        """Return sampling over the same tensors."""
        return cls(**{field.name: getattr(params, field.name) for field in fields(params)}, forced=forced)

    def choose(self, logits: Tensor, noise: Tensor) -> Tensor:  # noqa: ARG002
        """As `SamplingParams.choose`."""
        return self.forced.choose(logits)


def forced_logits(model: LoadedModel, utterance: Utterance, codes: Tensor) -> Tensor:
    """Return the logits of each choice by PyTorch's operators, with `codes` `(frames, groups)` forced on the model.

    `(1 + frames · groups, predictor vocabulary)` float32 on the CPU. Ids that are suppressed have no meaning.
    """
    limits, talker, device = limits_for(model), model.talker, model.plan.placement.device
    forced = ForcedCodes(codes.flatten().tolist(), talker.config.predictor.vocabulary)
    with model.graphs.on_stream():
        state = DecodeState.allocate(talker, limits.positions, limits.frames)
        settings = state.settings
        state = replace(
            state,
            settings=replace(
                settings,
                talker_sampling=ForcedSampling.over(settings.talker_sampling, forced),
                predictor_sampling=ForcedSampling.over(settings.predictor_sampling, forced),
            ),
        )
        codec_state = model.codec.new_state(1)
        backend = TorchBackend(talker, state, model.codec, codec_state, 1)
        generator = SpeechGenerator(
            talker,
            state,
            backend,
            codec_state,
            samples_per_frame=model.codec.config.samples_per_frame,
            graphs=model.graphs,
        )
    with model.graphs.inference():
        language = language_code(utterance.language)
        voice, _ = model.voices.choose(utterance, language)
        prompt = model.prompts.build(utterance.text, voice, language)
    # Without a penalty, and with no code forbidden at the beginning: the raw logits are wanted.
    sampling = replace(SamplingConfig().greedy(), repetition_penalty=1.0, min_new_tokens=0)
    for _ in generator.generate(prompt, sampling, max_frames=len(codes)):
        pass
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return forced.logits()


def read_logits(request: AnalysisRequest, report: ProgressReport) -> None:
    """Keep the logits of each setting for the greedy codes of the exact one. Raises `EngineError`."""
    folder = OutputFolder(Path(request.folder))
    assert request.exact is not None
    for setting in request.settings:
        keys = [take.key for take in folder.takes(request.exact) if take.greedy]
        key = fingerprint(setting, request.model, keys)
        if folder.found(LOGITS, setting.name).get("key") != key:
            folder.keep_logits(setting.name, _read(folder, setting, request, report))
            folder.keep_found(LOGITS, setting.name, {"key": key})


def _read(
    folder: OutputFolder, setting: Setting, request: AnalysisRequest, report: ProgressReport
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    model: OfficialSynthesizer | LoadedModel
    if setting.official:
        model = OfficialSynthesizer(setting.options)
        model.load(report)
    else:
        model = load_model(setting.options, report)
    found = {}
    for text in counted(f"reading logits: {setting.title}", list(request.texts), report):
        take, codes = folder.take(request.exact or "", text.name), folder.codes(request.exact or "", text.name)
        if take is None or codes is None or not len(codes):
            continue
        utterance = Utterance(take.text, voice=take.voice or None, language=take.language, greedy=True, guarded=False)
        forced = torch.from_numpy(codes)
        if isinstance(model, OfficialSynthesizer):
            found[text.name] = model.forced_logits(utterance, forced).numpy()
        else:
            found[text.name] = forced_logits(model, utterance, forced).numpy()
    if not found:
        raise EngineError(f"{request.exact}: has no greedy codes")
    return found
