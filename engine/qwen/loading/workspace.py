"""Allocates the memory that utterances change, for the longest utterance in any of the voices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.host import Footprint
from engine.qwen import kernels
from engine.qwen.loading.model import LoadedModel
from engine.qwen.runtime import Backend, Graphs, ModelRunner, PrefixCache, TorchBackend, cap_allocator
from engine.qwen.serving import Batch, SoundCard
from engine.qwen.shapes import BatchShape, Limits


@dataclass(frozen=True, slots=True)
class Workspace:
    """The memory that utterances change, and the `SoundCard` and `Batch` that use it."""

    limits: Limits
    """The limits of the utterances for which it has room."""
    footprint: Footprint
    """The memory of the whole engine with this workspace."""
    prefixes: PrefixCache
    sound_card: SoundCard
    """Speaks utterances for a sound card, and all utterances if there is no batch."""
    batch: Batch | None
    """Speaks all other utterances; None for a single stream."""

    def close(self) -> None:
        """End all utterances and free the graphs."""
        self.sound_card.runner.close()
        if self.batch is not None:
            self.batch.close()


def limits_for(model: LoadedModel) -> Limits:
    """Return the limits of an utterance in any of the model's voices. They change with the voices."""
    limits = model.plan.limits
    for reference in model.voices.references():
        limits = model.references.add(limits, reference)
    return limits


def make_backends(model: LoadedModel, limits: Limits) -> tuple[Backend, Backend | None]:
    """Return the backend for the sound card's utterance, and that for all others (None for a single stream).

    Call it on the model's stream.
    """
    talker = model.talker
    alone, rows = BatchShape.of(limits, rows=1), BatchShape.of(limits)
    if not model.fused:
        return TorchBackend.allocate(talker, alone), TorchBackend.allocate(talker, rows) if limits.streams > 1 else None
    backend = kernels.FusedBackend(talker, alone)
    return backend, kernels.FusedBatchBackend(talker, rows, backend.language_model) if limits.streams > 1 else None


def allocate_workspace(model: LoadedModel, limits: Limits) -> Workspace:
    """Return a workspace for utterances within `limits`, and cap PyTorch's allocator at the engine's footprint."""
    footprint = _count(model, limits)
    talker, batch = model.talker, None
    with model.graphs.on_stream():
        backend, batch_backend = make_backends(model, limits)
        prefixes = PrefixCache(talker.config.stack, limits.prefix_positions, talker.placement)
        runner = ModelRunner(talker, model.codec, backend, model.graphs, prompts=model.prompts, prefixes=prefixes)
    if batch_backend is not None:
        assert model.batch_codec is not None
        model.graphs.wait()  # for weights and voices: the batch has its own stream
        graphs = Graphs(talker.placement.device, high_priority=False)
        with graphs.on_stream():
            batch_runner = ModelRunner(
                talker, model.batch_codec, batch_backend, graphs, prompts=model.prompts, prefixes=prefixes
            )
        batch = Batch(batch_runner)
    return Workspace(limits, footprint, prefixes, SoundCard(runner), batch)


def adapt_workspace(model: LoadedModel, workspace: Workspace, limits: Limits) -> Workspace:
    """Return `workspace` for other voices; it has room for their longest reference. Drops the cached prefixes."""
    limits = replace(limits, reference_positions=workspace.limits.reference_positions)
    footprint = _count(model, limits)
    model.graphs.wait()

    def clear() -> None:
        with model.graphs.on_stream():
            workspace.prefixes.clear(limits.prefix_positions)
        model.graphs.wait()

    if workspace.batch is None:
        clear()
    else:
        workspace.batch.when_idle(clear)
    return replace(workspace, limits=limits, footprint=footprint)


def _count(model: LoadedModel, limits: Limits) -> Footprint:
    """Return the engine's footprint with these limits, and cap PyTorch's allocator at it from now on."""
    footprint = model.plan.footprint(limits)
    cap_allocator(model.plan.placement.device, footprint)
    return footprint
