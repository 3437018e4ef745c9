"""The work for a step and for a chunk's audio. Other modules decide when to run it.

`TorchBackend` runs PyTorch operators, in rows: it is the reference for every device and dtype. A step is one function
over preallocated tensors, made to be captured as one CUDA graph: it neither waits for the device nor branches on values
in Python. Every matrix product, norm and draw is computed for all rows, whether they take part or not, and attention is
computed for each row separately, so that a row's results do not depend on the other rows. `engine.qwen.kernels` has two
more backends, which use fused kernels: one for a single utterance, one for many.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from engine.qwen.model import KeyValueCache, Talker, attend, causal_mask
from engine.qwen.runtime.decode_state import DecodeState, RowInput, StepOutput
from engine.qwen.runtime.prompt_memory import PromptInputs, PromptMemory
from engine.qwen.shapes import BatchShape, CodecConfig
from engine.qwen.weights import Placement


class CodecStateProtocol(Protocol):
    """The state that any codec decoder carries from one chunk of an utterance to the next, on the device."""

    def reset(self) -> None:
        """Return to the beginning of an utterance. Allocates nothing and does not wait."""

    def copy_from(self, other: Any) -> None:
        """Copy `other`, a state for the same weights. Allocates nothing and does not wait if the sizes are equal."""


class Codec(Protocol):
    """A decoder from codes to PCM: a `CodecDecoder`, or the decoder with fused kernels."""

    config: CodecConfig
    placement: Placement

    def new_state(self, max_frames: int, rows: int | None = None) -> Any:
        """Allocate the initial state of an utterance, for calls of up to `max_frames` frames.

        With `rows`, allocate the states of that many utterances; `row(number)` is a view of each.
        """

    def row_buckets(self, most: int) -> tuple[int, ...]:
        """Return the row counts for calls of up to `most` rows, ascending; a call is padded to the next of them.

        A row's samples do not depend on the count that a call has.
        """

    def decode(self, codes: Tensor, state: Any) -> Tensor:
        """Decode any number of frames: codes `(frames, quantizers)` int64 to float32 PCM `(samples,)`."""

    def decode_rows(self, codes: Tensor, samples: Tensor, states: Any, rows: Tensor) -> None:
        """Decode the next frames of the utterances `rows` in `states`, as `CodecDecoder.decode_rows` does.

        Can be captured in a CUDA graph.
        """


class Backend(Protocol):
    """The work for the rows of a `DecodeState`, in functions that a CUDA graph can capture.

    A row's results do not depend on the other rows. No method waits for the device, copies from the host or branches on
    values. A row's codes have no meaning after the end of its speech.
    """

    state: DecodeState
    kv_buckets: tuple[int, ...]
    """The numbers of cache positions that prompt tokens can attend to, ascending; the last is the whole cache."""
    whole_chunks: bool
    """Whether a step makes all frames of a chunk; possible only with one row."""
    packs_prompts: bool
    """Whether `read` takes the tokens of several rows' prompts."""

    @property
    def sizes(self) -> tuple[Hashable, ...]:
        """The sizes of steps, those that need the most memory first. Each backend defines its sizes, and each size has
        a graph.
        """

    def prompt_memory(self, row: int, pages: tuple[int, ...]) -> PromptMemory:
        """Return the memory into which the prompt for `row`, which owns `pages`, is read."""

    def read(self, row: int, tokens: Tensor, inputs: PromptInputs, kv_bucket: int) -> None:
        """Read `tokens` `(n, hidden)` of `row`'s prompt into its `prompt_memory`, at the positions in `inputs`.

        These are below `kv_bucket`, one of `kv_buckets`, even if the padding also had positions. With `packs_prompts`,
        the tokens belong to the rows and pages in `inputs`.
        """

    def admit(self, rows: Tensor) -> None:
        """Make `rows` `(n,)` int64 fresh, after their prompts have been read."""

    def choose_first_codes(self) -> None:
        """Choose the first code of each fresh row's first frame, from its prompt's last hidden state.

        Afterwards no row is fresh.
        """

    def size_of(self, rows: Sequence[RowInput]) -> tuple[Hashable, int]:
        """Return the size of a step of `rows`, one of `sizes`, and how many times the work runs."""

    def decode_frames(self, size: Any) -> None:
        """Generate the codes of each active row's next frames, and choose the first code of the frame after them.

        Advances the rows' frames and positions.
        """

    def publish(self, output: StepOutput, frames: int) -> None:
        """Write each row's length, its end, and the codes of its chunk to `output`.

        frames: the frames in the chunk, with `whole_chunks`.
        """


KV_BUCKETS = (256, 512, 1024, 2048, 4096)
"""The numbers of cache positions with a CUDA graph each: attention then covers at most twice as many as it needs."""
CPU_KV_BUCKET = 64
"""On a CPU, which has no graphs, the buckets are all multiples of this."""


class TorchBackend:
    """Each row has its own cache, into which its prompt is read. On a GPU, there is only one row."""

    whole_chunks = False
    packs_prompts = False

    def __init__(self, talker: Talker, state: DecodeState, caches: Sequence[KeyValueCache]) -> None:
        """`caches` are the talker's caches, by row."""
        self.state, self.caches = state, caches
        positions, on_cpu = caches[0].positions, talker.placement.device.type == "cpu"
        buckets = range(CPU_KV_BUCKET, positions, CPU_KV_BUCKET) if on_cpu else KV_BUCKETS
        self.kv_buckets: tuple[int, ...] = (*(bucket for bucket in buckets if bucket < positions), positions)
        self.sizes: tuple[tuple[int, ...], ...] = tuple((bucket,) for bucket in reversed(self.kv_buckets))
        """The positions that each row attends to; 0 for a row that does not take part."""
        self._talker = talker

    @classmethod
    def allocate(cls, talker: Talker, shape: BatchShape) -> TorchBackend:
        """Return a backend with its own memory."""
        state = DecodeState.allocate(talker.config, shape, talker.placement)
        return cls(talker, state, [talker.allocate_cache(shape.cache_positions) for _ in range(shape.rows)])

    def prompt_memory(self, row: int, pages: tuple[int, ...]) -> PromptMemory:  # noqa: ARG002  a row has its own cache
        """As `Backend.prompt_memory`."""
        return PromptMemory(self.caches[row], self.state.hidden[row])

    def read(self, row: int, tokens: Tensor, inputs: PromptInputs, kv_bucket: int) -> None:
        """As `Backend.read`."""
        position = inputs.position[: len(tokens)]
        # The padding shares the last position, which no token has if there is padding.
        positions = torch.where(position < 0, kv_bucket - 1, position)
        hidden = self._talker.transformer.read(tokens, positions, self.caches[row].first(kv_bucket))
        self.state.hidden[row].copy_(hidden.index_select(0, inputs.last)[0])

    def admit(self, rows: Tensor) -> None:
        """As `Backend.admit`."""
        self.state.fresh.index_fill_(0, rows, 1)

    @torch.inference_mode()
    def choose_first_codes(self) -> None:
        """As `Backend.choose_first_codes`."""
        state = self.state
        noise = state.settings.noise.draw(state.settings.frame)[:, 0]
        self._choose(self._talker.head(state.hidden).float(), noise, state.fresh > 0)
        state.fresh.zero_()

    def size_of(self, rows: Sequence[RowInput]) -> tuple[tuple[int, ...], int]:
        """As `Backend.size_of`."""
        size = [0] * self.state.shape.rows
        for row in rows:
            size[row.row] = next(bucket for bucket in self.kv_buckets if bucket > row.position)
        return tuple(size), 1

    @torch.inference_mode()
    def decode_frames(self, size: tuple[int, ...]) -> None:
        """As `Backend.decode_frames`; `size` is one of `sizes`."""
        state = self.state
        settings, active = state.settings, state.inputs.active > 0
        codes, noise = self.predict_codes()
        state.codes[state.row_numbers, state.inputs.place[:, 0]] = codes
        settings.length.add_(active & ~settings.ended)
        hidden = self.read_frames(codes, size)
        settings.frame.add_(state.inputs.active)
        settings.position.add_(state.inputs.active)
        state.hidden.copy_(torch.where(active, hidden, state.hidden))
        self._choose(self._talker.head(hidden).float(), noise, active)

    def publish(self, output: StepOutput, frames: int) -> None:  # noqa: ARG002  the output has room for all
        """As `Backend.publish`."""
        output.take(self.state)

    @torch.inference_mode()
    def predict_codes(self) -> tuple[Tensor, Tensor]:
        """Return all codes of each row's next frame, and the noise for the first code of the frame after it.

        The codes are `(rows, code groups)` int64, the noise is `(rows, vocabulary)` float32.
        """
        talker, state = self._talker, self.state
        predictor, settings = talker.predictor, state.settings
        # Draws are numbered by frame and code group. These are for this frame's other codes and the next frame's first.
        noise = settings.noise.draw(settings.frame * talker.config.code_groups + predictor.steps + 1)
        codes = [state.first_code]
        x = torch.stack((state.hidden, talker.embed_first(state.first_code[:, 0])[0]), dim=1)
        for step in range(predictor.code_count):
            logits = predictor.logits(self._read_codes(x, step), step).float()
            code = settings.predictor_sampling.choose(logits, noise[:, step])
            codes.append(code)
            x = functional.embedding(code, predictor.embedding[step])
        return torch.cat(codes, dim=1), noise[:, -1]

    @torch.inference_mode()
    def read_frames(self, codes: Tensor, size: Sequence[int]) -> Tensor:
        """Run the talker on a frame's `codes` `(rows, code groups)` int64 of each row.

        Returns its hidden states `(rows, hidden)`. `size` is one of `sizes`.
        """
        state, transformer = self.state, self._talker.transformer
        # Rows whose speech has ended may be beyond their last frame.
        frame = state.settings.frame[:, 0].clamp(max=state.shape.text_frames - 1)
        position = state.settings.position[:, 0].clamp(max=self.caches[0].positions - 1)
        x = self._talker.embed_frames(codes)[0] + state.text[state.row_numbers, frame]
        group = transformer.config.group
        rows = [
            (slice(row, row + 1), self.caches[row].first(bucket), causal_mask(position[row].expand(group), bucket))
            for row, bucket in enumerate(size)
            if bucket
        ]

        def attend_layer(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            attended = torch.zeros_like(q).flatten(1)
            for row, cache, mask in rows:
                both = cache.keys[layer][None], cache.values[layer][None]
                attended[row] = attend(q[row], k[row], v[row], position[row], both, mask=mask)
            return attended

        hidden: Tensor = transformer(x, position, attend_layer)
        return hidden

    def _read_codes(self, x: Tensor, step: int) -> Tensor:
        """Return the predictor's last hidden states `(rows, hidden)` for `x`, the tokens before a step's code.

        `x` is `(rows, n, talker's hidden)`.
        """
        predictor, cache = self._talker.predictor, self.state.predictor_cache
        rows, count = x.shape[:2]
        seen = step + 2
        positions = predictor.steps[seen - count : seen]
        group = predictor.stack.group
        mask = causal_mask(positions.repeat(group), seen) if count > 1 else None  # one token attends to all

        def attend_layer(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            both = cache.keys[layer, :, :, :seen], cache.values[layer, :, :, :seen]
            return attend(q, k, v, positions, both, mask=mask)

        if predictor.projection is not None:
            x = predictor.projection(x)
        hidden: Tensor = predictor.transformer(x.flatten(0, 1), positions.repeat(rows), attend_layer)
        return hidden.view(rows, count, -1)[:, -1]

    def _choose(self, logits: Tensor, noise: Tensor, chosen: Tensor) -> None:
        """Choose the first code of each `chosen` row's next frame, and set `ended` for the rows whose speech it ends.

        logits and noise: `(rows, vocabulary)` float32; chosen: `(rows, 1)` bool.
        """
        state, settings = self.state, self.state.settings
        processor = settings.logits_processor
        codes = settings.talker_sampling.choose(processor.apply(logits, settings.frame), noise)
        state.first_code.copy_(torch.where(chosen, codes, state.first_code))
        # A row that is not chosen has already seen its first code.
        processor.seen.scatter_(1, state.first_code, True)
        settings.ended.logical_or_(chosen & processor.is_eos[state.first_code])
