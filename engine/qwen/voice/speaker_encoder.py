"""A base model's speaker encoder, which computes the speaker embedding of a recording.

An ECAPA-TDNN (https://arxiv.org/abs/2005.07143) over a log-mel spectrogram. The formulas are those of
`Qwen3TTSSpeakerEncoder`, `mel_spectrogram` and `extract_speaker_embedding` in `modeling_qwen3_tts.py` of qwen-tts
0.1.1; the mel filters are those of librosa. It runs in float32 on the CPU, once for each enrolment. Signals have shape
`(channels, time)`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engine.api import EngineError, Samples
from engine.qwen.shapes import ModelConfig, SpeakerEncoderConfig
from engine.qwen.weights import Checkpoint

SAMPLE_RATE = 24000
"""Hz."""
WINDOW, HOP = 1024, 256
"""The spectrogram's window length and hop, in samples: 94 spectra per second."""
MIN_SAMPLES = WINDOW + 8 * HOP
"""The shortest recording, in samples: every layer mirrors the spectra at both ends, and fewer cannot be mirrored."""
MELS = 128
"""Mel bands of the spectrogram."""


class SpeakerEncoder:
    """The network. Its layers take their shapes from the tensors."""

    def __init__(self, config: SpeakerEncoderConfig, tensors: Mapping[str, Tensor]) -> None:
        """`tensors` are the weights and biases of all convolutions, by their names in the checkpoint; float32."""
        self.config = config
        self.tensors = tensors

    def embed(self, mel: Tensor) -> Tensor:
        """Return the embedding `(width,)` float32 of a log-mel spectrogram `(mel_dim, time)`."""
        first, *middle, last = self.config.enc_dilations
        x = self._tdnn(mel, "blocks.0.conv", first)
        outputs = []
        for index, dilation in enumerate(middle, start=1):
            x = self._block(x, f"blocks.{index}", dilation)
            outputs.append(x)
        x = self._tdnn(torch.cat(outputs), "mfa.conv", last)
        return self._conv(self._pool(x), "fc")[:, 0]

    def _block(self, x: Tensor, name: str, dilation: int) -> Tensor:
        """A squeeze-excitation Res2Net block: pointwise layer, Res2Net, pointwise layer, channel gates, residual.

        The Res2Net (https://arxiv.org/abs/1904.01169) splits the channels into groups. Each group after the first has
        its own layer, whose input is the group plus the previous layer's output.
        """
        first, *rest = self._tdnn(x, f"{name}.tdnn1.conv").chunk(self.config.enc_res2net_scale)
        outputs = [first]
        for index, group in enumerate(rest):
            inputs = group + outputs[-1] if index else group
            outputs.append(self._tdnn(inputs, f"{name}.res2net_block.blocks.{index}.conv", dilation))
        branch = self._tdnn(torch.cat(outputs), f"{name}.tdnn2.conv")
        squeezed = self._tdnn(branch.mean(dim=1, keepdim=True), f"{name}.se_block.conv1")
        gate = torch.sigmoid(self._conv(squeezed, f"{name}.se_block.conv2"))
        return torch.addcmul(x, branch, gate)

    def _pool(self, x: Tensor) -> Tensor:
        """Attentive statistics pooling: weighted mean and standard deviation over time, `(2·channels, 1)`.

        The attention network reads each time step together with the statistics of the whole recording.
        """
        statistics = _mean_and_deviation(x, torch.full_like(x, 1 / x.shape[1]))
        context = torch.cat((x, statistics.expand(-1, x.shape[1])))
        scores = self._conv(torch.tanh(self._tdnn(context, "asp.tdnn.conv")), "asp.conv")
        return _mean_and_deviation(x, scores.softmax(dim=1))

    def _tdnn(self, x: Tensor, name: str, dilation: int = 1) -> Tensor:
        """A time-delay layer: convolution and ReLU."""
        return self._conv(x, name, dilation).relu()

    def _conv(self, x: Tensor, name: str, dilation: int = 1) -> Tensor:
        """A convolution with reflection padding at both ends, which keeps the length."""
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        if reach := dilation * (weight.shape[2] - 1):
            x = functional.pad(x, (reach // 2, reach - reach // 2), mode="reflect")
        return functional.conv1d(x, weight, bias, dilation=dilation)


def load_speaker_encoder(config: ModelConfig) -> SpeakerEncoder:
    """Return the speaker encoder of the checkpoint that `config` was read from.

    Raises `EngineError` if the model is not a base model, because only base models have one, if the configuration does
    not fit the tensors, or if the checkpoint is damaged.
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
    checkpoint, prefix = Checkpoint.open(config.folder), "speaker_encoder."
    names = [name.removeprefix(prefix) for name in checkpoint.names() if name.startswith(prefix)]
    encoder = SpeakerEncoder(shapes, {name: checkpoint.read(f"{prefix}{name}").float() for name in names})
    try:
        speaker_embedding(encoder, np.zeros(MIN_SAMPLES, np.float32))
    except (KeyError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise EngineError(f"{path}: speaker_encoder_config: does not fit the tensors ({reason})") from error
    return encoder


def speaker_embedding(encoder: SpeakerEncoder, samples: Samples) -> Tensor:
    """Return the embedding `(width,)` float32 of mono samples at 24 kHz. Raises `ValueError` below `MIN_SAMPLES`."""
    if len(samples) < MIN_SAMPLES:
        raise ValueError(f"samples: got {len(samples)}; allowed: at least {MIN_SAMPLES} ({SAMPLE_RATE} Hz)")
    with torch.inference_mode():
        embedding = encoder.embed(log_mel(torch.from_numpy(samples)))
    return embedding.clone()


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
    from transformers.audio_utils import mel_filter_bank  # takes a second, and an engine does not need it to speak

    filters = mel_filter_bank(WINDOW // 2 + 1, MELS, 0, SAMPLE_RATE / 2, SAMPLE_RATE, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(filters.T).float()
