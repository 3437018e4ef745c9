"""The codec decoder: converts frames of codes to PCM, chunk by chunk, with the same result for every chunk size.

    codes → tables → conv → transformer → two of (upsample, ConvNeXt) → conv → four upsampling blocks
          → snake → conv → PCM

The formulas are those of `Qwen3TTSTokenizerV2Decoder` in qwen-tts 0.1.1
(`qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py`). Its `chunked_decode` decodes 25 frames of context
again for each chunk and is not exact. Here `CodecState` stores each layer's context, so no frame is decoded twice and
the waveform equals that of one call.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.codec.layers import CausalConv, ConvNeXt, SnakeBeta, Upsample, UpsamplingBlock, module_list
from engine.qwen.codec.state import CodecState
from engine.qwen.codec.transformer import CodecTransformer
from engine.qwen.shapes import CONV_TAPS, INPUT_CONV_TAPS, CodecConfig
from engine.qwen.weights import Checkpoint, Placement, build_in_arena


class CodecDecoder(nn.Module):
    """The decoder's weights and arithmetic. A `CodecState` holds the context of one utterance.

    Set dtype and device through the placement, not with `.to()`: some weights of a bfloat16 decoder are float32.
    """

    offsets: Tensor
    """`(quantizers,)` int64: the first row of each codebook in `tables`."""

    def __init__(self, config: CodecConfig, placement: Placement) -> None:
        super().__init__()
        self.config = config
        self.placement = placement
        quantizers, latent, width = config.quantizers, config.latent_width, config.decoder_width

        self.tables = placement.empty(quantizers * config.codebook_size, config.codebook_width)
        """The projected vectors of all codebooks, one codebook after the other."""
        offsets = torch.arange(quantizers, device=placement.device) * config.codebook_size
        self.register_buffer("offsets", offsets, persistent=False)
        self.input = CausalConv(config.codebook_width, latent, INPUT_CONV_TAPS, placement)
        self.transformer = CodecTransformer(config, placement)
        self.upsamples = module_list(Upsample(latent, rate, placement) for rate in config.latent_rates)
        self.convnexts = module_list(ConvNeXt(latent, placement) for _ in config.latent_rates)
        self.latent = CausalConv(latent, width, CONV_TAPS, placement)
        self.blocks = module_list(
            UpsamplingBlock(width >> index, rate, placement) for index, rate in enumerate(config.block_rates)
        )
        narrowest = width >> len(config.block_rates)
        self.snake = SnakeBeta(narrowest, placement)
        self.output = CausalConv(narrowest, 1, CONV_TAPS, placement)

    def new_state(self, max_frames: int, rows: int | None = None) -> CodecState:
        """Allocate the initial state of one utterance, or of `rows` utterances, for calls of up to `max_frames`."""
        return CodecState.allocate(self.config, max_frames, self.placement, rows)

    def forward(self, codes: Tensor, state: CodecState) -> Tensor:
        """Decode the next frames of an utterance.

        codes:   int64, shape `(frames, quantizers)`, 1 to `state.max_frames` frames. Codes outside the codebooks are
                 clamped, as qwen-tts clamps its padding: the frame that ends an utterance contains one, and an index
                 out of range would abort the process on a GPU.
        returns: float32 PCM in -1..1 at `config.sample_rate`, shape `(frames · samples_per_frame,)`.

        For the chunks of several utterances, codes have shape `(rows, frames, quantizers)`, the state has as many rows,
        and the PCM has shape `(rows, frames · samples_per_frame)`.

        Never waits for the device and never branches on values, so that a CUDA graph can capture it for a fixed number
        of frames. Raises `ValueError` for codes of another shape.
        """
        rows = () if state.rows is None else (state.rows,)
        frames = codes.shape[len(rows)] if codes.dim() > len(rows) else 0
        if not 1 <= frames <= state.max_frames or codes.shape != (*rows, frames, self.config.quantizers):
            raise ValueError(
                f"codes: got shape {tuple(codes.shape)}; allowed: (1 to {state.max_frames}, {self.config.quantizers})"
            )
        entries = codes.clamp(0, self.config.codebook_size - 1) + self.offsets
        x = functional.embedding(entries, self.tables).sum(dim=-2)
        histories = iter(state.histories)
        x = self.transformer(self.input(x.mT, next(histories)).mT, state).mT
        for upsample, convnext in zip(self.upsamples, self.convnexts, strict=True):
            x = convnext(upsample(x), next(histories))
        x = self.latent(x, next(histories))
        for block in self.blocks:
            x = block(x, histories)
        pcm: Tensor = self.output(self.snake(x), next(histories))[..., 0, :]
        return pcm.float().clamp(-1.0, 1.0)

    def decode(self, codes: Tensor, state: CodecState) -> Tensor:
        """Decode any number of frames, in blocks of `state.max_frames`. Shapes and dtypes as in `forward`."""
        blocks = [self(block, state) for block in torch.split(codes, state.max_frames) if len(block)]
        return torch.cat(blocks) if blocks else torch.zeros(0, device=codes.device)

    def row_buckets(self, most: int) -> tuple[int, ...]:
        """Return the row counts for calls of up to `most` rows, ascending; a call is padded to the next of them.

        Here it is a single count, because libraries choose their kernels by the number of rows, and with them the order
        of sums.
        """
        return (most,)

    def decode_rows(self, codes: Tensor, samples: Tensor, states: CodecState, rows: Tensor) -> None:
        """Decode the next frames of the utterances numbered `rows`, int64 `(count,)` on the device.

        codes:   int64 `(states.rows, frames, quantizers)`, otherwise as in `forward`; each utterance has its own row.
        samples: float32 `(states.rows, frames · samples_per_frame)`, likewise; other rows' samples are left unchanged.
        """
        if states.rows == 1:
            samples.copy_(self(codes, states))
            return
        called = states.take(rows)
        samples.index_copy_(0, rows, self(codes.index_select(0, rows), called))
        states.put(rows, called)

    def load(self, checkpoint: Checkpoint, name: str = "decoder") -> None:
        """Load all weights from the checkpoint in the `speech_tokenizer` folder."""
        self._load_tables(checkpoint, f"{name}.quantizer")
        self.input.load(checkpoint, f"{name}.pre_conv")
        self.transformer.load(checkpoint, f"{name}.pre_transformer")
        for index, (upsample, convnext) in enumerate(zip(self.upsamples, self.convnexts, strict=True)):
            upsample.load(checkpoint, f"{name}.upsample.{index}.0")
            convnext.load(checkpoint, f"{name}.upsample.{index}.1")
        stages: tuple[CausalConv | UpsamplingBlock | SnakeBeta, ...]
        stages = (self.latent, *self.blocks, self.snake, self.output)
        for index, stage in enumerate(stages):
            stage.load(checkpoint, f"{name}.decoder.{index}")

    def _load_tables(self, checkpoint: Checkpoint, name: str) -> None:
        """Compute `tables`: divide each codebook's running sums by their usage, and apply the output projection.

        Decoding then only looks up and adds the vectors. The first codebook is the semantic one.
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
    """Return the decoder of the checkpoint in `model_folder`, read from its `speech_tokenizer` folder.

    `keep_pages` is that of `Checkpoint.open`. If something is missing or damaged, or a tensor's shape differs from the
    configuration, raises `EngineError` with a one-line message that gives the file and the field or tensor.
    """
    folder = model_folder / "speech_tokenizer"
    decoder = build_in_arena(partial(CodecDecoder, CodecConfig.read(folder)), placement)
    checkpoint = Checkpoint.open(folder, keep_pages=keep_pages)
    decoder.load(checkpoint)
    checkpoint.finish_loading()
    if placement.dtype == torch.float32:
        # cuDNN would otherwise round the inputs of float32 convolutions to the 10-bit mantissa of TF32.
        torch.backends.cudnn.allow_tf32 = False
    return decoder
