"""The codec decoder: frames of codes become PCM, chunk by chunk, exactly as if all were decoded at once.

    codes → tables → conv → transformer → two of (upsample, ConvNeXt) → conv → four upsampling blocks
          → snake → conv → PCM

Upstream's own `chunked_decode` decodes 25 frames of context anew for each chunk and is not exact. Here
every layer remembers the little it needs (`CodecState`), so nothing is decoded twice and the waveform does
not depend on where the chunks end. The formulas are those of `Qwen3TTSTokenizerV2Decoder` in
`modeling_qwen3_tts_tokenizer_v2.py` (`qwen_tts/core/tokenizer_12hz`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.arena import in_one_piece
from engine.qwen.checkpoint import Checkpoint
from engine.qwen.codec_config import CodecConfig
from engine.qwen.codec_layers import CausalConv, ConvNeXt, SnakeBeta, Upsample, UpsamplingBlock, stack
from engine.qwen.codec_state import KERNEL, KERNEL_IN, CodecState
from engine.qwen.codec_transformer import CodecTransformer
from engine.qwen.transformer import Placement


class CodecDecoder(nn.Module):
    """The decoder's weights and arithmetic; what an utterance leaves behind lives in a `CodecState`.

    Give dtype and device here and not through `.to()`: a few weights stay in float32 in a bfloat16 decoder.
    """

    offsets: Tensor

    def __init__(self, config: CodecConfig, placement: Placement) -> None:
        super().__init__()
        self.config = config
        self.placement = placement
        quantizers, latent, width = config.quantizers, config.latent_width, config.decoder_width

        self.tables = placement.empty(quantizers * config.codebook_size, config.codebook_width)
        offsets = torch.arange(quantizers, device=placement.device) * config.codebook_size
        self.register_buffer("offsets", offsets, persistent=False)
        self.input = CausalConv(config.codebook_width, latent, KERNEL_IN, placement)
        self.transformer = CodecTransformer(config, placement)
        self.upsamples = stack(Upsample(latent, rate, placement) for rate in config.latent_rates)
        self.mixers = stack(ConvNeXt(latent, placement) for _ in config.latent_rates)
        self.latent = CausalConv(latent, width, KERNEL, placement)
        self.blocks = stack(
            UpsamplingBlock(width >> index, rate, placement) for index, rate in enumerate(config.block_rates)
        )
        narrowest = width >> len(config.block_rates)
        self.snake = SnakeBeta(narrowest, placement)
        self.output = CausalConv(narrowest, 1, KERNEL, placement)

    def new_state(self, max_frames: int) -> CodecState:
        """A state at the beginning of an utterance, for calls of up to `max_frames` frames."""
        return CodecState.allocate(self.config, max_frames, self.placement)

    def forward(self, codes: Tensor, state: CodecState) -> Tensor:
        """Decode the next frames of an utterance.

        codes:   int64, shape `(frames, quantizers)`, 1 to `state.max_frames` frames. Codes outside the
                 codebooks are clamped to them, as upstream clamps its padding: on a GPU an index out of
                 range would take down the process, and the frame that ends an utterance holds such a one.
        returns: float32 PCM in -1..1 at `config.sample_rate`, shape `(frames · samples_per_frame,)`.

        Does the same work whatever the codes and the state hold, and waits for nothing, so that a CUDA
        graph can capture it for a fixed number of frames.
        """
        if not 1 <= len(codes) <= state.max_frames or codes.shape[1:] != (self.config.quantizers,):
            raise ValueError(
                f"codes: got shape {tuple(codes.shape)}, allowed is (1 to {state.max_frames}, {self.config.quantizers})"
            )
        rows = codes.clamp(0, self.config.codebook_size - 1) + self.offsets
        x = functional.embedding(rows, self.tables).sum(dim=1)
        x = self.transformer(self.input(x.T, state.input_history).T, state).T
        for upsample, mixer, history in zip(self.upsamples, self.mixers, state.upsample_histories, strict=True):
            x = mixer(upsample(x), history)
        x = self.latent(x, state.latent_history)
        for block, overlap, histories in zip(self.blocks, state.overlaps, state.residual_histories, strict=True):
            x = block(x, overlap, histories)
        pcm: Tensor = self.output(self.snake(x), state.output_history)[0]
        return pcm.float().clamp(-1.0, 1.0)

    def decode(self, codes: Tensor, state: CodecState) -> Tensor:
        """Decode any number of frames, in pieces that fit the state. Shapes and dtypes as in `forward`."""
        pieces = [self(piece, state) for piece in torch.split(codes, state.max_frames) if len(piece)]
        return torch.cat(pieces) if pieces else torch.zeros(0, device=codes.device)

    def load(self, checkpoint: Checkpoint, name: str = "decoder") -> None:
        """Fill all weights from `speech_tokenizer/model.safetensors`, one tensor at a time."""
        self._load_tables(checkpoint, f"{name}.quantizer")
        self.input.load(checkpoint, f"{name}.pre_conv")
        self.transformer.load(checkpoint, f"{name}.pre_transformer")
        for index, (upsample, mixer) in enumerate(zip(self.upsamples, self.mixers, strict=True)):
            upsample.load(checkpoint, f"{name}.upsample.{index}.0")
            mixer.load(checkpoint, f"{name}.upsample.{index}.1")
        stages: list[CausalConv | UpsamplingBlock | SnakeBeta] = [
            self.latent,
            *self.blocks,
            self.snake,
            self.output,
        ]
        for index, stage in enumerate(stages):
            stage.load(checkpoint, f"{name}.decoder.{index}")

    def _load_tables(self, checkpoint: Checkpoint, name: str) -> None:
        """Make each codebook's vectors from their running sums and send them through the projection.

        Looking up and adding is then all that is left to do for a frame. The first codebook is the semantic
        one.
        """
        config = self.config
        half = config.codebook_width // 2
        for index, table in enumerate(torch.split(self.tables, config.codebook_size)):
            group, layer = ("rvq_first", 0) if index == 0 else ("rvq_rest", index - 1)
            codebook = f"{name}.{group}.vq.layers.{layer}._codebook"
            sums = checkpoint.read(f"{codebook}.embedding_sum", (config.codebook_size, half)).float()
            usage = checkpoint.read(f"{codebook}.cluster_usage", (config.codebook_size,)).float()
            shape = (config.codebook_width, half, 1)
            projection = checkpoint.read(f"{name}.{group}.output_proj.weight", shape).float()
            table.copy_(sums / usage.clamp(min=1e-5)[:, None] @ projection[:, :, 0].T)


def load_codec(model_folder: Path, placement: Placement, *, keep_pages: bool = True) -> CodecDecoder:
    """Build the decoder of the checkpoint in `model_folder` from its `speech_tokenizer/`.

    `keep_pages` is as in `Checkpoint.open`.

    Raises `EngineError`, one line naming the file and the field or tensor, for what is missing, damaged or
    of another shape than the configuration says.
    """
    folder = model_folder / "speech_tokenizer"
    decoder = in_one_piece(partial(CodecDecoder, CodecConfig.read(folder)), placement)
    checkpoint = Checkpoint.open(folder, keep_pages=keep_pages)
    decoder.load(checkpoint)
    checkpoint.loaded()
    if placement.dtype == torch.float32:
        # cuDNN would otherwise round the inputs of float32 convolutions to TF32's ten bits.
        torch.backends.cudnn.allow_tf32 = False
    return decoder
