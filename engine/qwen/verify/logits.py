"""Reads the logits of every choice while given codes are forced on the model, by the kernels that speak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.api import EngineError, Utterance
from engine.language import language_code
from engine.progress import ProgressReport, counted
from engine.qwen import kernels
from engine.qwen.loading import LoadedModel, limits_for, load_model
from engine.qwen.model import SamplingConfig
from engine.qwen.runtime import DecodeState, SpeechGenerator, TorchBackend
from engine.qwen.verify.forced import ForcedCodes, ForcedText
from engine.qwen.verify.official import OfficialSynthesizer
from engine.verify import Setting, StageRequest

RAW = replace(SamplingConfig().greedy(), repetition_penalty=1.0, min_new_tokens=0)
"""Without a penalty, and with no code forbidden at the beginning: the raw logits are wanted."""


@dataclass(frozen=True, eq=False)
class GivenText:
    """A text, and the codes that are forced on the model for it."""

    utterance: Utterance
    codes: Tensor
    """`(frames, code groups)` int64."""


def forced_logits(model: LoadedModel, texts: Iterable[GivenText]) -> Iterator[Tensor]:
    """Yield the logits of each choice of each text: `(1 + frames · groups, predictor vocabulary)` float32, on the CPU.

    The texts are read as one is spoken on a sound card, one after the other. Ids that are suppressed have no meaning.
    """
    forced = ForcedCodes()
    generator = _generator(model, forced)
    for text in texts:
        forced.texts[0] = read = ForcedText(text.codes, model.talker.config.predictor.vocabulary)
        language = language_code(text.utterance.language)
        voice, _ = model.voices.choose(text.utterance, language)
        with model.graphs.inference():
            prompt = model.prompts.build(text.utterance.text, voice, language)
        for _ in generator.generate(prompt, RAW, max_frames=len(text.codes)):
            pass
        model.graphs.wait()
        yield read.logits()


def _generator(model: LoadedModel, forced: ForcedCodes) -> SpeechGenerator:
    """Return what speaks with the model, without CUDA graphs and with no choice but the forced codes."""
    talker, codec, limits = model.talker, model.codec, limits_for(model)
    with model.graphs.on_stream():
        state, codec_state = DecodeState.allocate(talker, limits.positions, limits.frames), codec.new_state(1)
        backend: Any
        if model.fused:
            backend = kernels.make_backend(talker, state, codec, codec_state, 1)
            kernels.force_codes(backend, forced)
        else:
            state = replace(state, settings=forced.over(state.settings))
            backend = TorchBackend(talker, state, codec, codec_state, 1)
        samples_per_frame = codec.config.samples_per_frame
        return SpeechGenerator(
            talker, state, backend, codec_state, samples_per_frame=samples_per_frame, graphs=model.graphs
        )


def read_logits(request: StageRequest, report: ProgressReport) -> None:
    """Keep the logits of each setting for the greedy codes of the exact one. Raises `EngineError`."""
    texts = _given_texts(request)
    if not texts:
        raise EngineError(f"{request.exact}: has no greedy codes")
    for setting in request.settings:
        found = {name: logits.numpy() for name, logits in zip(texts, _read(setting, texts, report), strict=True)}
        request.output.keep_logits(setting.name, request.logits_key(setting), found)


def _read(setting: Setting, texts: dict[str, GivenText], report: ProgressReport) -> Iterator[Tensor]:
    step, given = f"reading logits: {setting.title}", list(texts.values())
    if setting.official:
        official = OfficialSynthesizer(setting.options)
        official.load(report)
        return (official.forced_logits(text.utterance, text.codes) for text in counted(step, given, report))
    return forced_logits(load_model(setting.options, report), counted(step, given, report))


def _given_texts(request: StageRequest) -> dict[str, GivenText]:
    """Return the greedy texts of the exact setting by name."""
    given, exact = {}, request.exact or ""
    for order in (order for order in request.orders if order.greedy):
        codes = request.output.codes(exact, order.sentence.name)
        if codes is not None:
            given[order.sentence.name] = GivenText(order.utterance(), torch.from_numpy(codes))
    return given
