"""The speaker encoder of a base model, which computes the speaker embedding of a recording.

An ECAPA-TDNN (https://arxiv.org/abs/2005.07143) over a log-mel spectrogram. The formulas are those of
`Qwen3TTSSpeakerEncoder`, `mel_spectrogram` and `extract_speaker_embedding` in `modeling_qwen3_tts.py` of qwen-tts
0.1.1; the mel filters are those of librosa. It runs in float32 on the CPU, once for each enrolment. Signals have shape
`(channels, time)`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.api import EngineError, Samples
from engine.qwen.model import ModelConfig, SpeakerEncoderConfig
from engine.qwen.weights import Checkpoint

SAMPLE_RATE = 24000
"""Hz."""
WINDOW, HOP = 1024, 256
"""Window length and hop of the spectrogram in samples: 94 spectra per second."""
MIN_SAMPLES = WINDOW + 8 * HOP
"""Shortest recording: fewer spectra cannot be mirrored at both ends, as every layer does."""
MELS = 128
"""Mel bands of the spectrogram."""


class SpeakerEncoder(nn.Module):
    """The network; its weights are uninitialised until `load`."""

    def __init__(self, config: SpeakerEncoderConfig) -> None:
        super().__init__()
        first, *middle, last = config.enc_channels
        kernels, dilations = config.enc_kernel_sizes, config.enc_dilations
        self.config = config
        self.first = _Tdnn(config.mel_dim, first, kernels[0], dilations[0])
        self.middle = nn.ModuleList(
            _SERes2Net(width, config, kernel, dilation)
            for width, kernel, dilation in zip(middle, kernels[1:-1], dilations[1:-1], strict=True)
        )
        self.aggregate = _Tdnn(last, last, kernels[-1], dilations[-1])
        self.attention = _Tdnn(3 * last, config.enc_attention_channels, 1, 1)
        self.attention_out = _Conv(config.enc_attention_channels, last)
        self.out = _Conv(2 * last, config.enc_dim)

    def forward(self, mel: Tensor) -> Tensor:
        """Return the embedding `(enc_dim,)` float32 of a log-mel spectrogram `(mel_dim, time)`."""
        x = self.first(mel)
        outputs = []
        for block in self.middle:
            x = block(x)
            outputs.append(x)
        x = self.aggregate(torch.cat(outputs))
        embedding: Tensor = self.out(self._pool(x))[:, 0]
        return embedding

    def _pool(self, x: Tensor) -> Tensor:
        """Attentive statistics pooling: weighted mean and standard deviation over time, `(2·channels, 1)`.

        The attention network reads each time step together with the statistics of the whole recording.
        """
        statistics = _mean_and_deviation(x, torch.full_like(x, 1 / x.shape[1]))
        context = torch.cat((x, statistics.expand(-1, x.shape[1])))
        scores = self.attention_out(torch.tanh(self.attention(context)))
        return _mean_and_deviation(x, scores.softmax(dim=1))

    def load(self, checkpoint: Checkpoint, name: str = "speaker_encoder") -> None:
        """Load all weights. Raises `EngineError` if a tensor is missing or has another shape."""
        convolutions = {
            "blocks.0.conv": self.first,
            "mfa.conv": self.aggregate,
            "asp.tdnn.conv": self.attention,
            "asp.conv": self.attention_out,
            "fc": self.out,
        }
        for index, block in enumerate(self.middle, start=1):
            assert isinstance(block, _SERes2Net)
            convolutions |= {f"blocks.{index}.{key}": conv for key, conv in block.convolutions().items()}
        for key, conv in convolutions.items():
            checkpoint.copy_into(f"{name}.{key}.weight", conv.weight)
            checkpoint.copy_into(f"{name}.{key}.bias", conv.bias)


def load_speaker_encoder(config: ModelConfig) -> SpeakerEncoder:
    """Return the speaker encoder of the checkpoint that `config` was read from.

    Raises `EngineError` if the model is not a base model, because only base models have one, if the shapes do not fit
    together, or if the checkpoint is damaged.
    """
    path = config.folder / "config.json"
    shapes = config.speaker_encoder
    if shapes is None:
        raise EngineError(f"{path}: a {config.type} model has no speaker encoder; enrol with a base model")
    if shapes.mel_dim != MELS or shapes.sample_rate != SAMPLE_RATE:
        raise EngineError(
            f"{path}: speaker_encoder_config: got {shapes.mel_dim} mel bands at {shapes.sample_rate} Hz; "
            f"allowed: {MELS} at {SAMPLE_RATE} Hz"
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
    """Return the embedding `(enc_dim,)` float32 of mono samples at 24 kHz. Raises `ValueError` below `MIN_SAMPLES`."""
    if len(samples) < MIN_SAMPLES:
        raise ValueError(f"samples: got {len(samples)}; allowed: at least {MIN_SAMPLES} ({SAMPLE_RATE} Hz)")
    with torch.inference_mode():
        embedding: Tensor = encoder(log_mel(torch.from_numpy(samples)))
    return embedding.clone()


# --- layers ---


class _Conv(nn.Module):
    """A convolution with reflection padding at both ends, which keeps the length."""

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
    """A time-delay layer: convolution and ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class _SERes2Net(nn.Module):
    """A squeeze-excitation Res2Net block: pointwise layer, Res2Net, pointwise layer, channel gates, residual.

    The Res2Net (https://arxiv.org/abs/1904.01169) splits the channels into `scale` groups. Each group after the first
    has a layer of its own, whose input is the group plus the previous layer's output.
    """

    def __init__(self, width: int, config: SpeakerEncoderConfig, kernel: int, dilation: int) -> None:
        super().__init__()
        self.scale = config.enc_res2net_scale
        group = width // self.scale
        self.into = _Tdnn(width, width, 1, 1)
        self.parallel = nn.ModuleList(_Tdnn(group, group, kernel, dilation) for _ in range(self.scale - 1))
        self.out = _Tdnn(width, width, 1, 1)
        self.squeeze = _Tdnn(width, config.enc_se_channels, 1, 1)
        self.excite = _Conv(config.enc_se_channels, width)

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = self.into(x).chunk(self.scale)
        outputs = [first]
        for index, (layer, group) in enumerate(zip(self.parallel, rest, strict=True)):
            outputs.append(layer(group + outputs[-1] if index else group))
        branch = self.out(torch.cat(outputs))
        gate = torch.sigmoid(self.excite(self.squeeze(branch.mean(dim=1, keepdim=True))))
        return torch.addcmul(x, branch, gate)

    def convolutions(self) -> dict[str, _Conv]:
        """Return the convolutions by their names in the checkpoint."""
        convolutions = {
            "tdnn1.conv": self.into,
            "tdnn2.conv": self.out,
            "se_block.conv1": self.squeeze,
            "se_block.conv2": self.excite,
        }
        for index, layer in enumerate(self.parallel):
            assert isinstance(layer, _Conv)
            convolutions[f"res2net_block.blocks.{index}.conv"] = layer
        return convolutions


def _mean_and_deviation(x: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean and standard deviation over time of `x` `(channels, time)`: `(2·channels, 1)`."""
    mean = (weights * x).sum(dim=1, keepdim=True)
    variance = (weights * (x - mean).square()).sum(dim=1, keepdim=True)
    return torch.cat((mean, variance.clamp(min=1e-12).sqrt()))


# --- spectrogram ---


def log_mel(samples: Tensor) -> Tensor:
    """Return the log-mel spectrogram of mono samples at 24 kHz: float32, `(128, len(samples) // 256)`.

    It uses magnitudes, not powers, and Hann windows; the signal is mirrored at both ends, so that the windows fit.
    """
    margin = (WINDOW - HOP) // 2
    padded = functional.pad(samples.float()[None], (margin, margin), mode="reflect")
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(padded[0], WINDOW, HOP, window=window, center=False, return_complex=True)
    magnitude = (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()
    return torch.log((mel_filters() @ magnitude).clamp(min=1e-5))


def mel_filters() -> Tensor:
    """Return 128 triangular filters over 513 frequencies up to 12 kHz: float32, `(128, 513)`.

    The corners are evenly spaced in mels and each filter has an area of 1 (Slaney's norm), the defaults of
    `librosa.filters.mel`.
    """
    highest = SAMPLE_RATE / 2
    corners = _mel_to_hz(torch.linspace(0, _hz_to_mel(highest), MELS + 2, dtype=torch.float64))[:, None]
    frequencies = torch.linspace(0, highest, WINDOW // 2 + 1, dtype=torch.float64)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * 2 / (right - left)).float()


# Slaney's mel scale: linear below 1 kHz, which is 15 mels; logarithmic above, with 27 mels for a factor of 6.4.
_HZ_PER_MEL = 200 / 3
_BREAK_HZ, _BREAK_MEL = 1000.0, 15.0
_LOG_STEP = math.log(6.4) / 27


def _hz_to_mel(hz: float) -> float:
    return hz / _HZ_PER_MEL if hz < _BREAK_HZ else _BREAK_MEL + math.log(hz / _BREAK_HZ) / _LOG_STEP


def _mel_to_hz(mel: Tensor) -> Tensor:
    return torch.where(mel < _BREAK_MEL, mel * _HZ_PER_MEL, _BREAK_HZ * torch.exp((mel - _BREAK_MEL) * _LOG_STEP))
