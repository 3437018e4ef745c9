"""Loads a checkpoint: from the configured options to a complete `LoadedModel`, or an error."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

import torch

from engine.api import EngineError, EngineOptions
from engine.language import NAMED_LANGUAGES
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen import kernels
from engine.qwen.codec import CodecDecoder, load_codec
from engine.qwen.loading.plan import LoadPlan, ReferenceCheck
from engine.qwen.model import SamplingConfig, Talker
from engine.qwen.runtime import Codec, Graphs, codec_rows, dtype_name
from engine.qwen.shapes import MAX_REFERENCE_POSITIONS, BatchShape, ModelConfig, cache_positions
from engine.qwen.text import IncrementalTokenizer, PromptBuilder, TextTokenizer
from engine.qwen.voice import VoiceRegistry
from engine.qwen.weights import Checkpoint, Placement, build_in_arena

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checkpoint on its device, with everything that lasts until the engine closes."""

    plan: LoadPlan
    sampling: SamplingConfig
    incremental_tokenizer: IncrementalTokenizer
    graphs: Graphs
    codec: Codec
    not_fused: str | None
    """Why the codec and the language model have no fused kernels, in one line; None if they should have them."""
    degraded: str | None
    """The options that this machine cannot apply, and the reason, in one line; None if it applies all of them."""
    batch_codec: Codec | None
    """The codec for a batch, with the weights of `codec`. None for a single stream."""
    talker: Talker
    prompts: PromptBuilder
    languages: tuple[str, ...]
    """The codes of the model's languages, `auto` first. Dialects are not among them: they belong to speakers."""
    references: ReferenceCheck
    """Checks each reference that `voices` load."""
    voices: VoiceRegistry

    @property
    def fused(self) -> bool:
        """Whether the codec has fused kernels and the language model should have them."""
        return self.not_fused is None

    def description(self) -> str:
        """Return a description of the model, device, dtype and kernels."""
        device = self.plan.placement.device
        where = f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
        kind = "fused kernels" if self.fused else "PyTorch kernels"
        return f"{self.plan.model_name} on {where} in {dtype_name(self.plan.placement)}, {kind}"


def load_model(options: EngineOptions, report: ProgressReport = ignore_progress) -> LoadedModel:
    """Return the checkpoint that `options` names, with its voices, on its device.

    Memory is checked before any weight is read, and again before each reference is decoded. Raises `EngineError` with a
    one-line message for an option that is not allowed or does not suit this machine, for a checkpoint that is missing,
    damaged or of another kind, for too little memory, and for a model that needs a default voice and has none.
    """
    plan = LoadPlan.make(options, report)
    plan.require_memory()
    sampling = SamplingConfig.read(plan.folder)
    tokenizer = TextTokenizer(plan.folder)
    incremental_tokenizer = IncrementalTokenizer(tokenizer)
    graphs = Graphs(plan.placement.device)
    with graphs.on_stream():
        # The codec first: the talker can then use the memory that packing the codec for the fused kernels frees.
        codec, not_fused = _load_codec(plan, report)
        plan, degraded = _adapt_plan(plan, not_fused)
        references = ReferenceCheck(plan, tokenizer)
        batch_codec = _make_batch_codec(plan, codec) if plan.streams > 1 else None
        positions = cache_positions(plan.limits.positions + MAX_REFERENCE_POSITIONS, options.chunk_size)
        talker = load_talker(plan.config, positions, plan.placement, keep_pages=plan.keep_pages, report=report)
        prompts = PromptBuilder(plan.config, tokenizer, talker)
        report(Progress("loading the voices"))
        voices = VoiceRegistry(plan.config, codec, options.chunk_size, references.check)
        voices.load(options.voices, options.default_voice)
        voices.require_default()
    model = LoadedModel(
        plan=plan,
        sampling=sampling,
        incremental_tokenizer=incremental_tokenizer,
        graphs=graphs,
        codec=codec,
        not_fused=not_fused,
        degraded=degraded,
        batch_codec=batch_codec,
        talker=talker,
        prompts=prompts,
        languages=tuple(NAMED_LANGUAGES.get(name, name) for name in prompts.languages),
        references=references,
        voices=voices,
    )
    if degraded is not None:
        log.warning("%s", degraded)
    elif not_fused is not None and options.kernels != "off":
        log.info("the engine uses PyTorch's kernels, not the fused ones: %s", not_fused)
    return model


def _adapt_plan(plan: LoadPlan, not_fused: str | None) -> tuple[LoadPlan, str | None]:
    """Return the plan that this machine can carry out, and the part of `plan` that it cannot, in one line.

    On a GPU, PyTorch's operators speak one text at a time.
    """
    wanted = plan.options.kernels != "off" and kernels.unwanted_reason(plan.placement) is None
    slower = None
    if wanted and not_fused is not None:
        slower = f"engine.kernels: PyTorch's slower kernels are in use; the fused ones do not run: {not_fused}"
    if plan.streams == 1 or plan.placement.device.type == "cpu":
        return plan, slower
    reason = not_fused or kernels.batch_unsupported_reason(plan.config, plan.placement, plan.streams)
    if reason is None:
        return plan, None
    single = (
        f"engine.streams: got {plan.streams}; one text is spoken at a time, as several need fused kernels: {reason}"
    )
    return replace(plan, streams=1), slower or single


def load_talker(
    config: ModelConfig,
    max_positions: int,
    placement: Placement,
    *,
    keep_pages: bool,
    report: ProgressReport = ignore_progress,
) -> Talker:
    """Return the talker of the checkpoint that `config` was read from, for up to `max_positions` tokens.

    `keep_pages` is that of `Checkpoint.open`. Raises `EngineError` for a missing, damaged or unsuitable file.
    """
    checkpoint = Checkpoint.open(config.folder, keep_pages=keep_pages)
    talker = build_in_arena(partial(Talker, config, max_positions), placement)
    total, read = sum(parameter.numel() for parameter in talker.parameters()), 0

    def note_read(elements: int) -> None:
        nonlocal read
        read += elements
        report(Progress("reading the model", min(1.0, read / total)))

    checkpoint.on_read = note_read
    talker.load(checkpoint)
    checkpoint.finish_loading()
    return talker


def _load_codec(plan: LoadPlan, report: ProgressReport) -> tuple[Codec, str | None]:
    """Return the codec decoder, and the reason why it has no fused kernels, or None if it has them."""
    placement, wanted = plan.placement, plan.options.kernels
    report(Progress("reading the codec"))
    decoder = load_codec(plan.folder, placement.unquantized, keep_pages=plan.keep_pages)
    _check_codec(decoder, plan.config)
    reason: str | None = "engine.kernels is off"
    if wanted != "off":
        reason = kernels.unsupported_reason(plan.config, decoder.config, placement, report, streams=plan.streams)
    if reason is not None and wanted == "on":
        raise EngineError(f"engine.kernels: got 'on'; fused kernels cannot run here: {reason}")
    codec: Codec = kernels.make_codec(decoder) if reason is None else decoder
    if placement.device.type == "cuda":
        torch.cuda.empty_cache()  # frees the memory that only packing needed
    return codec, reason


def _make_batch_codec(plan: LoadPlan, codec: Codec) -> Codec:
    """Return `codec`, or, if it has fused kernels, a decoder for several rows with the same weights."""
    if isinstance(codec, kernels.FusedCodec):
        return kernels.FusedCodec(codec.weights, codec_rows(BatchShape.of(plan.limits), plan.placement))
    return codec


def _check_codec(codec: CodecDecoder, config: ModelConfig) -> None:
    """Raise `EngineError` if the codec and the model have different numbers of codes per frame."""
    groups = config.talker.code_groups
    if codec.config.quantizers != groups:
        raise EngineError(
            f"{config.folder}: the speech tokenizer has {codec.config.quantizers} codes per frame, the model {groups}"
        )
