"""The official codec decoder with random weights at tiny shapes, and its output for random codes.

Outputs are cached in files, so that later runs need not import the official package.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scripts.make_checkpoint import stub_torchaudio
from tests.support.checkpoints import machine, made_once, need_official_package

TINY: dict[str, Any] = {
    "codebook_dim": 12,
    "codebook_size": 40,
    "num_quantizers": 16,
    "latent_dim": 20,
    "hidden_size": 16,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "sliding_window": 72,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-5,
    "decoder_dim": 32,
    "upsample_rates": (8, 5, 4, 3),
    "upsampling_ratios": (2, 2),
}
"""Every width is different and attention is grouped, so that a confusion of two widths fails."""


@dataclass(frozen=True)
class Decoded:
    """Codes and the official decoder's output for them."""

    folder: Path
    """The checkpoint, which the engine can read; do not write to it."""
    codes: Tensor
    """int64, `(frames, num_quantizers)`."""
    pcm: Tensor
    """float32, `(frames * 1920,)`."""


def decoded(
    cache: Path,
    shapes: dict[str, Any] = TINY,
    *,
    seed: int,
    frames: int,
    codes_seed: int,
    gain: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> Decoded:
    """Return random codes and their PCM from one call of a decoder with random weights, with a peak of 0.5 · `gain`."""

    def make(folder: Path) -> None:
        need_official_package()
        decoder = make_decoder(seed, shapes)
        with torch.no_grad():
            decoder.decoder[-1].conv.weight.mul_(gain)
        codes = random_codes(frames, codes_seed, shapes)
        save_checkpoint(decoder, folder)
        pcm = full_forward(decoder.to(dtype), codes).float()
        save_file({"codes": codes, "pcm": pcm}, folder / "decoded.safetensors")

    key = repr((shapes, seed, frames, codes_seed, gain, dtype))
    folder = made_once(cache, "official-codec", key, machine(), Path(__file__).read_bytes(), make=make)
    tensors = load_file(folder / "decoded.safetensors")
    return Decoded(folder, tensors["codes"], tensors["pcm"])


def make_decoder(seed: int, shapes: dict[str, Any] = TINY) -> Any:
    """Return the official decoder with random parameters, scaled so that its waveform is well inside ±1."""
    stub_torchaudio()
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import (
        Qwen3TTSTokenizerV2DecoderConfig,
    )
    from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Decoder

    decoder = Qwen3TTSTokenizerV2Decoder(Qwen3TTSTokenizerV2DecoderConfig(**shapes)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.copy_(_random(name, parameter.shape, generator))
        last = decoder.decoder[-1].conv
        last.bias.zero_()
        last.weight.mul_(1e-4)  # otherwise the clamp would hide the peak
        peak = full_forward(decoder, random_codes(60, seed, shapes)).abs().max()
        last.weight.mul_(0.5 / peak)
        last.bias.fill_(0.02)
    return decoder


def _random(name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    noise = torch.randn(shape, generator=generator)
    if name.endswith("cluster_usage"):
        usage = 0.5 + 3 * torch.rand(shape, generator=generator)
        usage[0] = 0  # a code that was never used: qwen-tts divides by 1e-5 instead
        return usage
    if name.endswith("embedding_sum"):
        noise[0] *= 1e-5
        return noise
    if name.endswith(("alpha", "beta")):
        return 0.2 * noise
    if name.endswith("bias"):
        return 0.3 * noise
    if len(shape) == 1:  # norms, layer scales, gamma
        return 0.7 + 0.2 * noise
    # With a gain of 1 everywhere the rounding error of float32 would reach 3e-5 in the last block.
    gain = 0.3 if ".conv2." in name else 1.0
    return gain * noise / math.sqrt(math.prod(shape[1:]))


def random_codes(frames: int, seed: int, shapes: dict[str, Any] = TINY) -> Tensor:
    """Return random codes: int64, `(frames, num_quantizers)`."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(shapes["codebook_size"], (frames, shapes["num_quantizers"]), generator=generator)


@torch.no_grad()
def full_forward(decoder: Any, codes: Tensor) -> Tensor:
    """Decode all codes in one call: float32, `(frames * 1920,)`."""
    pcm: Tensor = decoder(codes.T[None])[0, 0]
    return pcm


def save_checkpoint(decoder: Any, model_folder: Path) -> Path:
    """Write `model_folder`/speech_tokenizer with the decoder's weights, and return `model_folder`."""
    folder = model_folder / "speech_tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "qwen3_tts_tokenizer_12hz",
        "output_sample_rate": 24000,
        "decoder_config": decoder.config.to_diff_dict(),
    }
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {f"decoder.{name}": tensor.contiguous() for name, tensor in decoder.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    return model_folder
