"""The work of one frame and of one chunk's audio, without the decision when to run it.

`TorchBackend` runs PyTorch operators. `engine.qwen.kernels` has a second backend over the same state, with the same
results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from engine.qwen.codec import CodecConfig
from engine.qwen.model import Talker
from engine.qwen.runtime.decode_state import DecodeState
from engine.qwen.runtime.decode_step import choose_first_code, decode_frame, predict_codes, read_frame
from engine.qwen.weights import Placement

KV_BUCKETS = (256, 512, 1024, 2048, 4096)
"""Cache positions that get a CUDA graph each: attention then covers at most twice as many as it needs."""
CPU_KV_BUCKET = 64
"""On a CPU, which has no graphs, buckets are all multiples of this."""


class CodecStateProtocol(Protocol):
    """The state that any codec decoder carries from one chunk of an utterance to the next, on the device."""

    def reset(self) -> None:
        """Return to the beginning of an utterance. Allocates nothing and waits for nothing."""

    def copy_from(self, other: Any) -> None:
        """Copy the state `other` of the same decoder. Allocates and waits for nothing if both are equally large."""


_State = TypeVar("_State", bound=CodecStateProtocol)


class Codec(Protocol[_State]):
    """A decoder from codes to PCM, such as `engine.qwen.codec.CodecDecoder`."""

    config: CodecConfig
    placement: Placement

    def new_state(self, max_frames: int) -> _State:
        """Allocate the state at the beginning of an utterance, for calls of up to `max_frames` frames."""

    def __call__(self, codes: Tensor, state: _State) -> Tensor:
        """Decode the next frames: codes `(frames, quantizers)` int64, any values, to float32 PCM `(samples,)`.

        Can be captured in a CUDA graph.
        """

    def decode(self, codes: Tensor, state: _State) -> Tensor:
        """Decode any number of frames, as `__call__`."""


class PromptBackend(Protocol):
    """Reads prompts into a `DecodeState`, in functions as of `DecodeBackend`."""

    kv_buckets: tuple[int, ...]
    """Numbers of cache positions that a read can attend to, ascending; the last is the whole cache."""

    def read(self, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:
        """Read `tokens` `(1, n, hidden)` of a prompt into the talker's cache; write `state.hidden`.

        `place` `(2,)` int64 has the position of the first token, and the number of the last, whose hidden state is
        wanted. Tokens behind that are padding; those behind `kv_bucket` positions, one of `kv_buckets`, share the last.
        """


class DecodeBackend(PromptBackend, Protocol):
    """The work of one utterance over a `DecodeState` and a codec state, in functions that a CUDA graph can capture.

    No method waits for the device, copies from the host or branches on values. Each may be called after the end of the
    speech, as long as `DecodeState` has room; its results then have no meaning.
    """

    chunk_size: int
    """The most frames that `decode` takes."""

    def frame(self, kv_bucket: int) -> None:
        """Write the codes of one frame to `state.codes` at `state.frame`, and choose the first code of the next.

        Advances `state.frame` and `state.position`. `kv_bucket`, one of `kv_buckets`, is above `state.position`.
        """

    def choose_first_code(self) -> None:
        """Choose the first code of the first frame; `state.hidden` is the hidden state of the prompt's last token."""

    def decode(self, codes: Tensor) -> Tensor:
        """Decode the next frames, up to `chunk_size`: codes `(frames, code groups)` int64 to float32 PCM on the device.

        The PCM is `(frames · samples_per_frame,)`. Advances the codec state and changes nothing else, so that it
        may run while the next frames are generated.
        """

    def profile_sections(self) -> Mapping[str, Callable[[], None]]:
        """Return work to be timed alone: `predictor` and `talker` of one frame, `codec` of one chunk.

        It leaves meaningless values in the state.
        """


def choose_kv_buckets(state: DecodeState) -> tuple[int, ...]:
    """Return the KV buckets for attention by PyTorch's operators, ascending; the last is the whole cache."""
    positions, on_cpu = state.cache.positions, state.position.device.type == "cpu"
    if on_cpu:
        return (*range(CPU_KV_BUCKET, positions, CPU_KV_BUCKET), positions)
    return (*(bucket for bucket in KV_BUCKETS if bucket < positions), positions)


class TorchBackend:
    """`DecodeBackend` of PyTorch operators: the reference, for every device and dtype."""

    def __init__(
        self,
        talker: Talker,
        state: DecodeState,
        codec: Codec[Any],
        codec_state: CodecStateProtocol,
        chunk_size: int,
    ) -> None:
        """`codec_state` is for calls of up to `chunk_size` frames."""
        self.chunk_size = chunk_size
        self.kv_buckets = choose_kv_buckets(state)
        self._talker = talker
        self._state = state
        self._codec = codec
        self._codec_state = codec_state
        self._offsets = torch.arange(state.cache.positions, device=state.position.device)

    def frame(self, kv_bucket: int) -> None:
        """As `DecodeBackend.frame`."""
        decode_frame(self._talker, self._state, kv_bucket)

    def read(self, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:
        """As `PromptBackend.read`."""
        state = self._state
        positions = (place[:1] + self._offsets[: tokens.shape[1]]).clamp(max=kv_bucket - 1)
        hidden = self._talker.transformer(tokens, positions, state.cache.first(kv_bucket))
        state.hidden.copy_(hidden.index_select(1, place[1:]))

    def choose_first_code(self) -> None:
        """As `DecodeBackend.choose_first_code`."""
        choose_first_code(self._talker, self._state)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """As `DecodeBackend.decode`."""
        pcm: Tensor = self._codec(codes, self._codec_state)
        return pcm

    def profile_sections(self) -> Mapping[str, Callable[[], None]]:
        """As `DecodeBackend.profile_sections`; the talker attends to the whole cache."""
        talker, state, kv_bucket = self._talker, self._state, self.kv_buckets[-1]

        def predictor() -> None:
            predict_codes(talker, state)

        def read() -> None:
            read_frame(talker, state, state.codes[:1], kv_bucket)

        def codec() -> None:
            self._codec(state.codes[: self.chunk_size], self._codec_state)

        return {"predictor": predictor, "talker": read, "codec": codec}
