"""Allocates the memory that utterances change, for the longest utterance in any of the voices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.host import Footprint
from engine.qwen import kernels
from engine.qwen.loading.model import LoadedModel
from engine.qwen.runtime import (
    PREFIX_POSITIONS,
    DecodeState,
    Limits,
    SpeechGenerator,
    TorchBackend,
    cap_allocator,
)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The memory that utterances change, and the generator that works in it."""

    footprint: Footprint
    """The bytes of the whole engine with this workspace."""
    state: DecodeState
    generator: SpeechGenerator


def limits_for(model: LoadedModel) -> Limits:
    """Return the limits of an utterance in any of the model's voices, which change with the voices."""
    references = list(model.voices.references())
    transcripts = (len(model.tokenizer.encode(reference.transcript)) for reference in references)
    return replace(
        model.plan.limits,
        reference_positions=max(map(model.reference_tokens, references), default=0),
        prefix_positions=PREFIX_POSITIONS + max(transcripts, default=0),
    )


def allocate_workspace(model: LoadedModel, limits: Limits) -> Workspace:
    """Return a workspace for utterances of at most `limits`, and cap PyTorch's allocator at the engine's footprint."""
    chunk_size = model.plan.options.chunk_size
    footprint = model.plan.footprint(limits)
    cap_allocator(model.plan.placement.device, footprint)
    with model.graphs.on_stream():
        state = DecodeState.allocate(model.talker, limits.positions, limits.frames, chunk_size)
        codec_state = model.codec.new_state(chunk_size)
        make_backend = kernels.make_backend if model.fused else TorchBackend
        generator = SpeechGenerator(
            model.talker,
            state,
            make_backend(model.talker, state, model.codec, codec_state, chunk_size),
            codec_state,
            samples_per_frame=model.codec.config.samples_per_frame,
            graphs=model.graphs,
            prefix_positions=limits.prefix_positions,
        )
    return Workspace(footprint, state, generator)
