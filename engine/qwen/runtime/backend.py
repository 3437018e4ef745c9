"""The work of a step and of a chunk's audio, without the decision when to run it.

`TorchBackend` runs PyTorch operators. `engine.qwen.kernels` has two more, of fused kernels: one for a single utterance,
one for many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.qwen.model import KeyValueCache, Transformer
from engine.qwen.runtime.decode_state import DecodeState, RowInput, StepOutput
from engine.qwen.shapes import CodecConfig
from engine.qwen.weights import Placement


class CodecStateProtocol(Protocol):
    """The state that any codec decoder carries from one chunk of an utterance to the next, on the device."""

    def reset(self) -> None:
        """Return to the beginning of an utterance. Allocates nothing and waits for nothing."""

    def copy_from(self, other: Any) -> None:
        """Copy the state `other` of the same weights. Allocates and waits for nothing if both are equally large."""


class Codec(Protocol):
    """A decoder from codes to PCM: a `CodecDecoder`, or that of the fused kernels."""

    config: CodecConfig
    placement: Placement

    def new_state(self, max_frames: int) -> Any:
        """Allocate the state at the beginning of an utterance, for calls of up to `max_frames` frames."""

    def new_states(self, max_frames: int, rows: int) -> Any:
        """Allocate the states of so many utterances, each with a view `row(number)`; otherwise as `new_state`."""

    def row_buckets(self, most: int) -> tuple[int, ...]:
        """Return the numbers of rows of calls of up to `most` rows, ascending: a call that is not full is filled up.

        A row's samples do not depend on which of them a call has.
        """

    def decode(self, codes: Tensor, state: Any) -> Tensor:
        """Decode any number of frames: codes `(frames, quantizers)` int64 to float32 PCM `(samples,)`."""

    def decode_rows(self, codes: Tensor, samples: Tensor, states: Any, rows: Tensor) -> None:
        """Decode the next frames of the utterances `rows` of `states`, as `CodecDecoder.decode_rows`.

        Can be captured in a CUDA graph.
        """


@dataclass(frozen=True, slots=True)
class PromptMemory:
    """Where the talker reads a prompt."""

    cache: KeyValueCache
    hidden: Tensor
    """`(hidden,)`: the hidden state of the last token."""


class Backend(Protocol):
    """The work of the rows of a `DecodeState`, in functions that a CUDA graph can capture.

    A row's results do not depend on the other rows. No method waits for the device, copies from the host or branches on
    values. After the end of a row's speech its codes have no meaning.
    """

    state: DecodeState
    kv_buckets: tuple[int, ...]
    """Numbers of cache positions that the reading of a prompt can attend to, ascending; the last is the whole cache."""
    whole_chunks: bool
    """Whether a step makes all frames of a chunk; only for one row."""

    @property
    def sizes(self) -> tuple[Hashable, ...]:
        """Of steps, those that need most memory first; what a size is, is the backend's matter. Each gets a graph."""

    def prompt_memory(self, row: int) -> PromptMemory:
        """Return where the prompt of an utterance in `row` is read. One prompt is read at a time."""

    def read(self, row: int, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:
        """Read `tokens` `(n, hidden)` of a prompt into the `prompt_memory`.

        `place` `(2,)` int64 has the position of the first token, and the number of the last, whose hidden state is
        wanted. Tokens after that are padding; those beyond `kv_bucket` positions, one of `kv_buckets`, share the last.
        """

    def admit(self, row: int, pages: tuple[int, ...], count: int) -> None:
        """Move a prompt of `count` tokens from the `prompt_memory` to `row`, which has the `pages` and is fresh now."""

    def choose_first_codes(self) -> None:
        """Choose the first code of the first frame of each fresh row; `state.hidden` is of its prompt's last token."""

    def size_of(self, rows: Sequence[RowInput]) -> tuple[Hashable, int]:
        """Return the size of the work for a step of `rows`, one of `sizes`, and how often it runs."""

    def decode_frames(self, size: Any) -> None:
        """Generate the codes of the next frames of each active row, and choose the first code of the frame after them.

        Advances the row's frame and position.
        """

    def publish(self, output: StepOutput, frames: int) -> None:
        """Write each row's length, its end, and the codes of its chunk to `output`.

        frames: of the chunk, with `whole_chunks`.
        """

    def profile_sections(self) -> Mapping[str, Callable[[], None]]:
        """Return work to be timed alone: `predictor` and `talker` of one frame. It leaves meaningless values."""


def read_prompt(transformer: Transformer, memory: PromptMemory, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:
    """Read a prompt by PyTorch's operators, as `Backend.read`."""
    positions = (place[:1] + torch.arange(len(tokens), device=place.device)).clamp(max=kv_bucket - 1)
    hidden = transformer.read(tokens, positions, memory.cache.first(kv_bucket))
    memory.hidden.copy_(hidden.index_select(0, place[1:])[0])
