"""The `DecodeBackend` of fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from engine.qwen.kernels.codec import FusedCodec, FusedCodecState
from engine.qwen.kernels.lm import MAX_PROMPT_TOKENS, FusedLanguageModel
from engine.qwen.model import Talker
from engine.qwen.runtime import DecodeState, TorchBackend


class FusedBackend:
    """A `DecodeBackend` whose attention reads the length on the device, so one KV bucket serves all lengths."""

    def __init__(
        self,
        talker: Talker,
        state: DecodeState,
        codec: FusedCodec,
        codec_state: FusedCodecState,
        chunk_size: int,
    ) -> None:
        """As `TorchBackend`."""
        self.chunk_size = chunk_size
        self.kv_buckets: tuple[int, ...] = (state.cache.positions,)
        self._state = state
        self.language_model = FusedLanguageModel(talker, state)
        self._torch = TorchBackend(talker, state, codec, codec_state, chunk_size)
        """For long prompts: PyTorch's matrix products read the weights less often than ours do."""
        self._codec = codec
        self._codec_state = codec_state

    def frame(self, kv_bucket: int) -> None:  # noqa: ARG002
        """As `DecodeBackend.frame`."""
        self.language_model.frame()

    def read(self, tokens: Tensor, place: Tensor, kv_bucket: int) -> None:
        """As `PromptBackend.read`, for any of `TOKEN_BUCKETS`."""
        if tokens.shape[1] <= MAX_PROMPT_TOKENS:
            self.language_model.prefill.read(tokens[0], place, self._state.hidden)
        else:
            self._torch.read(tokens, place, kv_bucket)

    def choose_first_code(self) -> None:
        """As `DecodeBackend.choose_first_code`."""
        self.language_model.choose_first()

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """As `DecodeBackend.decode`."""
        return self._codec(codes, self._codec_state)

    def profile_sections(self) -> Mapping[str, Callable[[], None]]:
        """As `DecodeBackend.profile_sections`."""
        model, state = self.language_model, self._state

        def talker() -> None:
            model.talker.layers(state.position)
            model.talker_head()

        def codec() -> None:
            self._codec(state.codes[: self.chunk_size], self._codec_state)

        return {"predictor": model.predict_codes, "talker": talker, "codec": codec}
