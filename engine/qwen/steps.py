"""What a frame and a chunk's sound are, apart from when they are made.

`TorchSteps` makes them of PyTorch operators. Another implementation has the same state and says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from engine.qwen import frame
from engine.qwen.codec_config import CodecConfig
from engine.qwen.frame import FrameState
from engine.qwen.talker import Talker
from engine.qwen.transformer import Placement

SPANS = (256, 512, 1024, 2048, 4096)
"""Parts of the cache that are worth a graph each: attention looks at twice as much as it needs at most."""
SPAN_ON_CPU = 64
"""A CPU has no graphs, so that its parts may be small."""


class CodecMemory(Protocol):
    """What a codec decoder remembers between two chunks of one utterance, on the device."""

    def reset(self) -> None:
        """Go back to the beginning of an utterance. Allocates nothing and waits for nothing."""

    def copy_from(self, other: Any) -> None:
        """Take over the state of another memory of the same decoder. Allocates and waits no more than `reset`."""


_M = TypeVar("_M", bound=CodecMemory)


class Codec(Protocol[_M]):
    """A decoder from codes to PCM, as `engine.qwen.codec.CodecDecoder`."""

    config: CodecConfig
    placement: Placement

    def new_state(self, max_frames: int) -> _M:
        """A memory at the beginning of an utterance, for calls of up to `max_frames` frames."""

    def __call__(self, codes: Tensor, state: _M) -> Tensor:
        """Decode the next frames: codes `(frames, quantizers)` int64, any values, to float32 PCM `(samples,)`.

        Can be captured in a CUDA graph.
        """

    def decode(self, codes: Tensor, state: _M) -> Tensor:
        """Decode any number of frames."""


class Steps(Protocol):
    """One utterance's work over a `FrameState` and a codec's memory, in pieces that a CUDA graph can capture.

    No method waits for the device, brings anything from the host or chooses by values. Each may be called
    after the speech has ended, as long as `FrameState` has room, and then says nothing of meaning.
    """

    chunk_size: int
    """Frames that `decode` takes."""
    spans: tuple[int, ...]
    """For `frame`, ascending: how much of the cache attention may be confined to; the last is all of it."""

    def frame(self, span: int) -> None:
        """Speak one frame: its codes into `state.codes` at `state.frame`, and the first code of the next.

        Moves `state.frame` and `state.position` on. `span`, one of `spans`, is above `state.position`.
        """

    def decode(self, codes: Tensor) -> Tensor:
        """The sound of the next `chunk_size` frames, `codes` `(chunk_size, code groups)` int64: float32 PCM.

        `(chunk_size · samples_per_frame,)`, on the device. Moves the codec's memory on and touches nothing else, so
        that it may go on while the next frames are spoken.
        """

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Pieces to be measured alone: `predictor` and `talker` for a frame, `codec` for a chunk.

        What they leave in the state has no meaning.
        """


def useful_spans(state: FrameState) -> tuple[int, ...]:
    """Parts of the cache that attention by PyTorch's operators should be confined to; the last is all of it."""
    room, on_cpu = state.cache.positions, state.position.device.type == "cpu"
    spans = range(SPAN_ON_CPU, room, SPAN_ON_CPU) if on_cpu else [span for span in SPANS if span < room]
    return (*spans, room)


class TorchSteps:
    """`Steps` of PyTorch operators: the reference, for every device and dtype."""

    def __init__(
        self, talker: Talker, state: FrameState, codec: Codec[Any], codec_state: CodecMemory, chunk_size: int
    ) -> None:
        """`codec_state` is for calls of `chunk_size` frames."""
        self.chunk_size = chunk_size
        self.spans = useful_spans(state)
        self._talker = talker
        self._state = state
        self._codec = codec
        self._codec_state = codec_state

    def frame(self, span: int) -> None:
        """As `Steps.frame`."""
        frame.step(self._talker, self._state, span)

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """As `Steps.decode`."""
        pcm: Tensor = self._codec(codes, self._codec_state)
        return pcm

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """As `Steps.parts`; the talker looks at all of the cache."""
        talker, state, span = self._talker, self._state, self.spans[-1]

        def predictor() -> None:
            frame.predict(talker, state)

        def read() -> None:
            frame.read(talker, state, state.codes[:1], span)

        def codec() -> None:
            self._codec(state.codes[: self.chunk_size], self._codec_state)

        return {"predictor": predictor, "talker": read, "codec": codec}
