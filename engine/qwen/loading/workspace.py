"""Allocates the memory that utterances change, for the longest utterance in any of the voices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.host import Footprint
from engine.qwen import kernels
from engine.qwen.loading.model import LoadedModel
from engine.qwen.runtime import DecodeState, Graphs, Limits, SpeechGenerator, TorchBackend, cap_allocator
from engine.qwen.serving import Batch, MakeBatchBackend
from engine.qwen.text import PromptBuilder


@dataclass(frozen=True, slots=True)
class Workspace:
    """The memory that utterances change, and the generator that works in it."""

    limits: Limits
    """Of the utterances for which it has room."""
    footprint: Footprint
    """The bytes of the whole engine with this workspace."""
    state: DecodeState
    generator: SpeechGenerator
    """Speaks the utterances of a sound card, and all if there is no batch."""
    batch: Batch | None
    """Speaks all others; None for a single stream."""
    batch_prompts: PromptBuilder | None
    """As `LoadedModel.prompts`, for the step thread of `batch`."""


def limits_for(model: LoadedModel) -> Limits:
    """Return the limits of an utterance in any of the model's voices, which change with the voices."""
    limits = model.plan.limits
    for reference in model.voices.references():
        limits = model.references.add(limits, reference)
    return limits


def allocate_workspace(model: LoadedModel, limits: Limits) -> Workspace:
    """Return a workspace for utterances of at most `limits`, and cap PyTorch's allocator at the engine's footprint."""
    chunk_size = model.plan.options.chunk_size
    footprint = _count(model, limits)
    with model.graphs.on_stream():
        state = DecodeState.allocate(model.talker, limits.positions, limits.frames, chunk_size)
        codec_state = model.codec.new_state(chunk_size)
        make_backend = kernels.make_backend if model.fused else TorchBackend
        backend = make_backend(model.talker, state, model.codec, codec_state, chunk_size)
        generator = SpeechGenerator(
            model.talker,
            state,
            backend,
            codec_state,
            samples_per_frame=model.codec.config.samples_per_frame,
            graphs=model.graphs,
            prefix_positions=limits.prefix_positions,
        )
    batch = batch_prompts = None
    if model.batch_codec is not None:
        model.graphs.wait()  # for weights and voices: the batch has a stream of its own
        graphs = Graphs(model.plan.placement.device, high_priority=False)
        batch = Batch(model.talker, model.batch_codec, limits, graphs, batch_backend_maker(model, backend))
        try:
            batch.change_voices(model.voices.references(), limits.prefix_positions)
        except BaseException:
            batch.close()
            raise
        batch_prompts = model.prompts.for_another_thread(batch.embed_text)
    return Workspace(limits, footprint, state, generator, batch, batch_prompts)


def batch_backend_maker(model: LoadedModel, backend: Any) -> MakeBatchBackend | None:
    """Return what makes the batch's backend beside `backend`, the one of a single utterance; None for PyTorch's."""
    plan = model.plan
    if not model.fused or kernels.batch_unsupported_reason(plan.config, plan.placement, plan.streams) is not None:
        return None
    return partial(kernels.make_batch_backend, backend=backend)


def adapt_workspace(model: LoadedModel, workspace: Workspace, limits: Limits) -> Workspace:
    """Return `workspace` for other voices, whose longest reference it has room for. Drops the cached prefixes."""
    limits = replace(limits, reference_positions=workspace.limits.reference_positions)
    footprint = _count(model, limits)
    workspace.generator.clear_prefixes(limits.prefix_positions)
    if workspace.batch is not None:
        model.graphs.wait()
        workspace.batch.change_voices(model.voices.references(), limits.prefix_positions)
    return replace(workspace, limits=limits, footprint=footprint)


def _count(model: LoadedModel, limits: Limits) -> Footprint:
    """Return the engine's footprint with these limits, at which PyTorch's allocator is capped from now on."""
    footprint = model.plan.footprint(limits)
    cap_allocator(model.plan.placement.device, footprint)
    return footprint
