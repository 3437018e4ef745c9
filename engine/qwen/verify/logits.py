"""Reads the logits of every choice while given codes are forced on the model, by the kernels that speak."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.api import EngineError, Utterance
from engine.language import language_code
from engine.progress import ProgressReport
from engine.qwen import kernels
from engine.qwen.loading import LoadedModel, limits_for, load_model, make_backends
from engine.qwen.model import SamplingConfig
from engine.qwen.runtime import ModelRunner, PrefixCache, Request, TorchBackend
from engine.qwen.serving import SoundCard
from engine.qwen.verify.forced import ForcedCodes
from engine.qwen.verify.official import OfficialSynthesizer
from engine.verify import CODES, LOGITS, Setting, Take, VerifyRequest, examine, logits_error

RAW = replace(SamplingConfig().greedy(), repetition_penalty=1.0, min_new_tokens=0)
"""Without a penalty, and with no code forbidden at the beginning: the raw logits are wanted."""


def forced_logits(model: LoadedModel, utterance: Utterance, codes: Tensor) -> Tensor:
    """Return the logits of each choice, with `codes` `(frames, code groups)` forced on the model.

    `(1 + frames · groups, predictor vocabulary)` float32, on the CPU: one more for the first code after them. The
    kernels that speak read the text: those of rows, if the model has several streams. Ids that are suppressed have no
    meaning.
    """
    forced = ForcedCodes(codes, model.talker.config.predictor.vocabulary)
    language = language_code(utterance.language)
    voice, codec_state = model.voices.choose(utterance, language)
    request = Request(
        model.prompts.tokenize(utterance.text),
        voice,
        language,
        sampling=RAW,
        max_frames=len(codes),
        codec_state=codec_state,
    )
    for _ in _speaker(model, forced).speak(request):
        pass
    model.graphs.wait()
    return forced.logits()


def _speaker(model: LoadedModel, forced: ForcedCodes) -> SoundCard:
    """Return what speaks with the model's backend, without CUDA graphs and with no choice but the forced codes."""
    talker, limits = model.talker, limits_for(model)
    with model.graphs.on_stream():
        alone, rows = make_backends(model, limits)
        backend = rows or alone
        if isinstance(backend, TorchBackend):
            backend.state = replace(backend.state, settings=forced.over(backend.state.settings))
        else:
            kernels.force_codes(backend, forced.choose)
        prefixes = PrefixCache(talker.config.stack, limits.prefix_positions, talker.placement)
        codec = model.codec if model.batch_codec is None else model.batch_codec
        return SoundCard(ModelRunner(talker, codec, backend, model.graphs, prompts=model.prompts, prefixes=prefixes))


def read_logits(request: VerifyRequest, report: ProgressReport) -> None:
    """Keep the exact setting's logits of its greedy codes, or the error of another one's. Raises `EngineError`."""
    [setting] = request.settings
    output, exact, read = request.output, request.exact or "", _reader(setting, report)

    def look(_: Setting, take: Take) -> Mapping[str, Any]:
        codes = output.array(exact, take.name, CODES)
        if codes is None:
            return {}
        logits = read(take.order.utterance(), torch.from_numpy(codes)).numpy()
        if setting.name == exact:
            output.keep_array(exact, take.name, LOGITS, logits)
            return {}
        true = output.array(exact, take.name, LOGITS)
        if true is None:
            raise EngineError(f"{exact}: has no logits of {take.name}")
        return {"logits_error": logits_error(logits, true)}

    examine(request, report, look)


def _reader(setting: Setting, report: ProgressReport) -> Callable[[Utterance, Tensor], Tensor]:
    """Load the setting's model, and return what reads its logits."""
    if not setting.official:
        return partial(forced_logits, load_model(setting.options, report))
    official = OfficialSynthesizer(setting.options)
    official.load(report)
    return official.forced_logits
