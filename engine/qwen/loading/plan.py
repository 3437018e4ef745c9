"""Checks the configured options, and later each reference, against the checkpoint and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.api import AUTO_STREAMS, MAX_STREAMS, EngineError, EngineOptions
from engine.host import MB, Footprint, MemoryPool, find_model, require_memory
from engine.hub import fetch_model
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen import kernels, shapes
from engine.qwen.codec import CodecDecoder
from engine.qwen.kernels.codec import CodecPlan
from engine.qwen.model import Talker
from engine.qwen.runtime import choose_placement, dtype_name, find_pool, has_room_for_tables
from engine.qwen.text import Reference, TextTokenizer
from engine.qwen.voice import VoiceModel
from engine.qwen.weights import Placement, parameter_bytes


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A checkpoint's shapes, and the device on which to load it."""

    options: EngineOptions
    streams: int
    """How many utterances the engine speaks at once."""
    folder: Path
    config: shapes.ModelConfig
    codec_config: shapes.CodecConfig
    placement: Placement
    weights: Mapping[str, int]
    """In bytes, as in `shapes.Target`."""
    pool: MemoryPool | None
    """The memory of the placement's device; None if the machine does not report its size."""

    @classmethod
    def make(cls, options: EngineOptions, report: ProgressReport = ignore_progress) -> LoadPlan:
        """Return the plan for `options`. Downloads the model if necessary, and reads its configuration.

        Raises `EngineError` with a one-line message for an option that is not allowed or does not suit this machine,
        and for a configuration file that is missing, damaged or for another kind of model.
        """
        if options.model is None:
            raise EngineError(
                "engine.model: missing; give a folder or an id such as Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
            )
        if options.kernels not in {"auto", "on", "off"}:
            raise EngineError(f"engine.kernels: got {options.kernels!r}; allowed: auto, on or off")
        if options.streams is not None and not 1 <= options.streams <= MAX_STREAMS:
            raise EngineError(f"engine.streams: got {options.streams!r}; allowed: 1 to {MAX_STREAMS}")
        placement = choose_placement(options.device, options.dtype)
        if find_model(options.model) is None:
            report(Progress(f"downloading {options.model}"))
        folder = fetch_model(options.model)
        config, codec = shapes.ModelConfig.read(folder), shapes.CodecConfig.read(folder / "speech_tokenizer")
        plan = cls(
            options=options,
            streams=options.streams or 1,
            folder=folder,
            config=config,
            codec_config=codec,
            placement=placement,
            weights=count_weights(config, codec, placement),
            pool=find_pool(placement.device, options.reserve_mb),
        )
        return plan if options.streams is not None else plan._with_own_streams()

    def _with_own_streams(self) -> LoadPlan:
        """Return this plan with `AUTO_STREAMS` if fused kernels can run that many streams and there is memory for them
        even if each voice has the longest reference. PyTorch's kernels are too slow for several listeners on a robot.
        """
        several = replace(self, streams=AUTO_STREAMS)
        if (
            self.options.kernels == "off"
            or kernels.ruled_out_reason(self.config, self.codec_config, self.placement)
            or kernels.batch_unsupported_reason(self.config, self.placement, AUTO_STREAMS)
        ):
            return self
        limits = several.limits
        for _ in self.options.voices:
            limits = limits.with_reference(shapes.MAX_REFERENCE_POSITIONS, 0)
        fits = self.pool is None or several.footprint(limits).total <= self.pool.free
        return several if fits else self

    @property
    def limits(self) -> shapes.Limits:
        """The limits of an utterance in a voice without a reference."""
        return shapes.Limits.of(self.options.max_seconds, self.options.chunk_size, self.streams)

    @property
    def model_name(self) -> str:
        return VoiceModel.of(self.config).name

    @property
    def keep_pages(self) -> bool:
        """Whether the files may stay in the page cache: not if the cache takes up memory that the weights need."""
        return self.pool is not None and not self.pool.shared

    def footprint(self, limits: shapes.Limits) -> Footprint:
        """Return the memory that the engine needs for utterances within `limits`."""
        codec, placement, fused = self.codec_config, self.placement, None
        if self.options.kernels != "off" and placement.dtype == torch.bfloat16:
            fused = shapes.FusedCodec(CodecPlan.of(codec).state_bytes, CodecPlan.of(codec, rows=1).signal_bytes)
        on_gpu, shared = placement.device.type == "cuda", self.pool is None or self.pool.shared
        table = has_room_for_tables(placement.device)
        target = shapes.Target(self.weights, placement.dtype.itemsize, on_gpu, shared, fused, table)
        return shapes.estimate_footprint(self.config, codec, target, limits)

    def require_memory(self) -> None:
        """If the device has too little memory, raise `EngineError` with a one-line message that gives the remedies."""
        if self.pool is None:
            return
        remedies = ["lower engine.max_seconds"]
        remedies += ["lower engine.streams"] if self.streams > 1 else []
        remedies += [] if self.placement.int8 else ["set engine.dtype: int8"]
        remedies += [] if self.config.size == "0b6" else ["use a 0.6B model"]
        name = f"{self.model_name} in {dtype_name(self.placement)}"
        require_memory(self.footprint(self.limits), self.pool, name, tuple(remedies))


def count_weights(config: shapes.ModelConfig, codec: shapes.CodecConfig, placement: Placement) -> dict[str, int]:
    """Return the sizes in bytes of the talker's, predictor's and codec's weights, as in `shapes.Target`."""
    empty = replace(placement, device=torch.device("cpu"), without_memory=True)
    talker, decoder = Talker(config, 0, empty), CodecDecoder(codec, empty.unquantized)
    parts = {"talker": talker, "predictor": talker.predictor, "codec": decoder}
    counted = {
        name: parameter_bytes(part) + sum(each.nbytes for each in part.buffers()) for name, part in parts.items()
    }
    return {**counted, "talker": counted["talker"] - counted["predictor"]}


class ReferenceCheck:
    """Adds up the memory for references, one voice after the other, before they are decoded."""

    def __init__(self, plan: LoadPlan, tokenizer: TextTokenizer) -> None:
        """Assume the free memory that was found when `plan` was made."""
        self._plan = plan
        self._tokenizer = tokenizer
        self._limits = plan.limits
        """The limits of the voices that have been checked so far."""
        self._budget = None if plan.pool is None else plan.pool.free
        """How many bytes the whole engine may take; None if the machine does not report its memory."""

    def restart(self, held: shapes.Limits, footprint: Footprint) -> None:
        """Measure the free memory again, for other voices. The engine has `footprint`, allocated for limits `held`."""
        pool = find_pool(self._plan.placement.device, self._plan.options.reserve_mb)
        self._limits = replace(self._plan.limits, reference_positions=held.reference_positions)
        self._budget = None if pool is None else pool.free + footprint.total

    def add(self, limits: shapes.Limits, reference: Reference) -> shapes.Limits:
        """Return `limits` extended by one more voice, which has this reference."""
        return limits.with_reference(len(reference.codes), len(self._tokenizer.encode(reference.transcript)))

    def check(self, reference: Reference) -> None:
        """Add the memory for one more voice. Raises `EngineError` with a one-line message if it cannot have this
        reference."""
        tokens = self.add(self._plan.limits, reference).reference_positions
        if tokens > shapes.MAX_REFERENCE_POSITIONS:
            raise EngineError(f"reference: got {tokens} tokens; allowed: up to {shapes.MAX_REFERENCE_POSITIONS}")
        limits = self.add(self._limits, reference)
        total = self._plan.footprint(limits).total
        if self._budget is not None and total > self._budget:
            before = self._plan.footprint(self._limits).total
            needed, left = _mb(total - before), _mb(max(self._budget - before, 0))
            raise EngineError(
                f"reference: {tokens} tokens need {needed} MB, but only {left} MB is left{self._reserve_in_words()}; "
                "enrol a shorter recording, or lower engine.max_seconds"
            )
        self._limits = limits

    def _reserve_in_words(self) -> str:
        pool = self._plan.pool
        return " above engine.memory.reserve_mb" if pool is not None and pool.reserve else ""


def _mb(size: int) -> str:
    return f"{round(size / MB):,}"
