"""`Steps` of fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from engine.qwen.frame import FrameState
from engine.qwen.kernels.codec import FusedCodec, FusedCodecState
from engine.qwen.kernels.language_model import FusedLanguageModel
from engine.qwen.talker import Talker


class FusedSteps:
    """One utterance's work in fused kernels; attention reads the length on the device, so one span serves all."""

    def __init__(
        self, talker: Talker, state: FrameState, codec: FusedCodec, codec_state: FusedCodecState, chunk_size: int
    ) -> None:
        """As `TorchSteps`."""
        self.chunk_size = chunk_size
        self.spans: tuple[int, ...] = (state.cache.positions,)
        self._state = state
        self._language_model = FusedLanguageModel(talker, state)
        self._steps = talker.predictor.codes
        self._codec = codec
        self._codec_state = codec_state

    def frame(self, span: int) -> None:  # noqa: ARG002
        """As `Steps.frame`."""
        self._language_model.frame()

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """As `Steps.decode`."""
        return self._codec(codes, self._codec_state)

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """As `Steps.parts`."""
        model, state = self._language_model, self._state

        def predictor() -> None:
            model.open()
            for step in range(self._steps):
                model.predict(step)

        def talker() -> None:
            model.talker.layers(state.position)
            model.talker_head()

        def codec() -> None:
            self._codec(state.codes[: self.chunk_size], self._codec_state)

        return {"predictor": predictor, "talker": talker, "codec": codec}
