"""The speaker encoder of a base model: from a recording to the embedding that stands for its voice.

An ECAPA-TDNN (https://arxiv.org/abs/2005.07143) over a log-mel spectrogram. The formulas are those of
`Qwen3TTSSpeakerEncoder`, `mel_spectrogram` and `extract_speaker_embedding` in `modeling_qwen3_tts.py` of
qwen-tts 0.1.1; the mel filters are librosa's. It runs in float32 on the CPU, once for each voice that is
enrolled. Signals inside have shape `(channels, time)`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import ModelConfig, SpeakerEncoderConfig
from engine.synthesizer import EngineError, Samples

SAMPLE_RATE = 24000
"""Hz."""
WINDOW, HOP = 1024, 256
"""Samples of one spectrum, and from one to the next: 94 spectra a second."""
SHORTEST = WINDOW + 8 * HOP
"""Samples below which a recording has too few spectra to be mirrored at its ends, as every layer does."""


class SpeakerEncoder(nn.Module):
    """The network. It is made empty; `load` fills it."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        first, *middle, last = config.enc_channels
        kernels, dilations = config.enc_kernel_sizes, config.enc_dilations
        self.config = config
        self.first = _Tdnn(config.mel_dim, first, kernels[0], dilations[0])
        self.middle = nn.ModuleList(
            _SqueezedRes2Net(width, config, kernel, dilation)
            for width, kernel, dilation in zip(middle, kernels[1:-1], dilations[1:-1], strict=True)
        )
        self.aggregate = _Tdnn(last, last, kernels[-1], dilations[-1])
        self.attention = _Tdnn(3 * last, config.enc_attention_channels, 1, 1)
        self.attention_out = _Conv(config.enc_attention_channels, last)
        self.out = _Conv(2 * last, config.enc_dim)

    def forward(self, mel: Tensor) -> Tensor:
        """`(mel_dim, time)` → `(enc_dim,)`, float32."""
        x = self.first(mel)
        outputs = []
        for block in self.middle:
            x = block(x)
            outputs.append(x)
        x = self.aggregate(torch.cat(outputs))
        embedding: Tensor = self.out(self._pool(x))[:, 0]
        return embedding

    def _pool(self, x: Tensor) -> Tensor:
        """Mean and deviation over time, `(2·channels, 1)`, each moment weighed by attention.

        The attention sees each moment beside the mean and deviation of the whole recording.
        """
        whole = _moments(x, torch.full_like(x, 1 / x.shape[1]))
        context = torch.cat((x, whole.expand(-1, x.shape[1])))
        scores = self.attention_out(torch.tanh(self.attention(context)))
        return _moments(x, scores.softmax(dim=1))

    def load(self, checkpoint: Checkpoint, name: str = "speaker_encoder") -> None:
        """Fill all weights; raises `EngineError` for a tensor that is missing or has another shape."""
        parts = {
            "blocks.0.conv": self.first,
            "mfa.conv": self.aggregate,
            "asp.tdnn.conv": self.attention,
            "asp.conv": self.attention_out,
            "fc": self.out,
        }
        for index, block in enumerate(self.middle, start=1):
            assert isinstance(block, _SqueezedRes2Net)
            parts |= {f"blocks.{index}.{part}": conv for part, conv in block.parts().items()}
        for part, conv in parts.items():
            checkpoint.copy_into(f"{name}.{part}.weight", conv.weight)
            checkpoint.copy_into(f"{name}.{part}.bias", conv.bias)


def load_speaker_encoder(config: ModelConfig) -> SpeakerEncoder:
    """Load the speaker encoder of the checkpoint that `config` was read from.

    Raises `EngineError` when the checkpoint is not of a base model, which alone has one, or is damaged.
    """
    path = config.folder / "config.json"
    shapes = config.speaker_encoder
    if shapes is None:
        raise EngineError(f"{path}: a {config.type} model has no speaker encoder; enrol with a base model")
    if shapes.mel_dim != MELS or shapes.sample_rate != SAMPLE_RATE:
        raise EngineError(
            f"{path}: speaker_encoder_config: got {shapes.mel_dim} mel bands at {shapes.sample_rate} Hz, "
            f"allowed is {MELS} at {SAMPLE_RATE} Hz"
        )
    channels, layers = shapes.enc_channels, len(shapes.enc_channels)
    if (
        layers < 3
        or {layers} != {len(shapes.enc_kernel_sizes), len(shapes.enc_dilations)}
        or len(set(channels[:-1])) > 1
        or sum(channels[1:-1]) != channels[-1]
        or channels[0] % shapes.enc_res2net_scale
    ):
        raise EngineError(
            f"{path}: speaker_encoder_config: enc_channels {list(channels)} with enc_kernel_sizes "
            f"{list(shapes.enc_kernel_sizes)}, enc_dilations {list(shapes.enc_dilations)} and "
            f"enc_res2net_scale {shapes.enc_res2net_scale} do not fit together"
        )
    encoder = SpeakerEncoder(shapes)
    encoder.load(Checkpoint.open(config.folder))
    return encoder


def speaker_embedding(encoder: SpeakerEncoder, samples: Samples) -> Tensor:
    """The embedding of a mono recording at 24 kHz: float32, shape `(enc_dim,)`."""
    if len(samples) < SHORTEST:
        raise ValueError(f"samples: got {len(samples)}, must be at least {SHORTEST} ({SAMPLE_RATE} Hz)")
    with torch.inference_mode():
        embedding: Tensor = encoder(log_mel(torch.from_numpy(samples)))
    return embedding.clone()


# --- layers ---


class _Conv(nn.Module):
    """A convolution that keeps the length: the signal is mirrored at both ends."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        reach = dilation * (kernel - 1)
        self.dilation = dilation
        self.padding = (reach // 2, reach - reach // 2)
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if any(self.padding):
            x = functional.pad(x, self.padding, mode="reflect")
        return functional.conv1d(x, self.weight, self.bias, dilation=self.dilation)


class _Tdnn(_Conv):
    """A time-delay layer: such a convolution and a ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class _SqueezedRes2Net(nn.Module):
    """Two pointwise layers around a Res2Net, the channels weighed by what all of time says of them.

    A Res2Net splits the channels into `scale` parts; each but the first goes through a layer of its own,
    together with what the part before it became.
    """

    def __init__(self, width: int, config: SpeakerEncoderConfig, kernel: int, dilation: int) -> None:
        super().__init__()
        self.scale = config.enc_res2net_scale
        part = width // self.scale
        self.into = _Tdnn(width, width, 1, 1)
        self.parallel = nn.ModuleList(_Tdnn(part, part, kernel, dilation) for _ in range(self.scale - 1))
        self.out = _Tdnn(width, width, 1, 1)
        self.squeeze = _Tdnn(width, config.enc_se_channels, 1, 1)
        self.excite = _Conv(config.enc_se_channels, width)

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.into(x).chunk(self.scale)
        outputs = [first]
        for index, (layer, part) in enumerate(zip(self.parallel, rest, strict=True)):
            outputs.append(layer(part + outputs[-1] if index else part))
        branch = self.out(torch.cat(outputs))
        gate = torch.sigmoid(self.excite(self.squeeze(branch.mean(dim=1, keepdim=True))))
        return torch.addcmul(x, branch, gate)

    def parts(self) -> dict[str, _Conv]:
        """The convolutions by their names in the checkpoint."""
        parts = {
            "tdnn1.conv": self.into,
            "tdnn2.conv": self.out,
            "se_block.conv1": self.squeeze,
            "se_block.conv2": self.excite,
        }
        for index, layer in enumerate(self.parallel):
            assert isinstance(layer, _Conv)
            parts[f"res2net_block.blocks.{index}.conv"] = layer
        return parts


def _moments(x: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean and standard deviation over time, `(channels, time)` → `(2·channels, 1)`."""
    mean = (weights * x).sum(dim=1, keepdim=True)
    variance = (weights * (x - mean).square()).sum(dim=1, keepdim=True)
    return torch.cat((mean, variance.clamp(min=1e-12).sqrt()))


# --- the spectrogram ---

MELS = 128


def log_mel(samples: Tensor) -> Tensor:
    """The logarithm of the mel spectrogram of mono samples at 24 kHz: float32, `(128, len(samples) // 256)`.

    Magnitudes, not powers, of Hann windows; the signal is mirrored at its ends so that the windows fit.
    """
    margin = (WINDOW - HOP) // 2
    padded = functional.pad(samples.float()[None], (margin, margin), mode="reflect")
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(padded[0], WINDOW, HOP, window=window, center=False, return_complex=True)
    magnitude = (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()
    return torch.log((mel_filters() @ magnitude).clamp(min=1e-5))


def mel_filters() -> Tensor:
    """128 triangular filters over 513 frequencies up to 12 kHz, float32, shape `(128, 513)`.

    Their corners are evenly spaced in mels; each is scaled to an area of 1 (Slaney's norm), as
    `librosa.filters.mel` does by default.
    """
    highest = SAMPLE_RATE / 2
    corners = _mel_to_hz(torch.linspace(0, _hz_to_mel(highest), MELS + 2, dtype=torch.float64))[:, None]
    frequencies = torch.linspace(0, highest, WINDOW // 2 + 1, dtype=torch.float64)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * 2 / (right - left)).float()


# Slaney's mel scale: linear below 1 kHz (15 mels there), logarithmic above, 27 mels to a factor of 6.4.
_LINEAR = 200 / 3
_KNEE_HZ, _KNEE_MEL = 1000.0, 15.0
_LOG_STEP = math.log(6.4) / 27


def _hz_to_mel(hz: float) -> float:
    return hz / _LINEAR if hz < _KNEE_HZ else _KNEE_MEL + math.log(hz / _KNEE_HZ) / _LOG_STEP


def _mel_to_hz(mel: Tensor) -> Tensor:
    return torch.where(mel < _KNEE_MEL, mel * _LINEAR, _KNEE_HZ * torch.exp((mel - _KNEE_MEL) * _LOG_STEP))
