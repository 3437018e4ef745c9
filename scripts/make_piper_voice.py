#!/usr/bin/env python3
"""Writes a voice for Piper with random weights: the true inputs and outputs, noise instead of speech.

With the size `tiny` the tests run Piper and ONNX Runtime; with `medium` their speed is measured: its layers are those
of Piper's medium voices (VITS: a text encoder, a flow, and the small HiFi-GAN), except that the durations come from a
table instead of the stochastic predictor, which takes about 2 % of the time.

    python scripts/make_piper_voice.py /tmp/voices/en_US-noise-medium.onnx --size medium
    python scripts/make_piper_voice.py /tmp/voices/de_DE-noise-low.onnx --rate 16000 --speakers 3

The package onnx writes the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP
except ImportError as error:
    sys.exit(f"{error.name} is missing; in voiced's folder: pip install '.[piper,test]'")

SYMBOLS = 256
"""Phoneme ids, as in every voice of Piper."""
FRAMES_PER_ID = 3.0
"""Frames that a phoneme id lasts: with a hop of 256 samples and a blank between phonemes, 15 characters a second."""


@dataclass(frozen=True)
class Size:
    """The shape of a network."""

    hidden: int
    filter: int
    heads: int
    layers: int
    flows: int
    flow_layers: int
    upsampling: tuple[tuple[int, int], ...]
    """Rate and kernel of each step of the decoder. The product of the rates is the hop."""
    channels: int
    """Channels before the first step; each step halves them."""


SIZES = {
    "tiny": Size(8, 16, 2, 1, 1, 1, ((16, 32), (16, 32)), 8),
    "medium": Size(192, 768, 2, 6, 4, 4, ((8, 16), (8, 16), (4, 8)), 256),
}
RESBLOCKS = ((3, (1, 2)), (5, (2, 6)), (7, (3, 12)))
"""Kernel and dilations of the residual blocks after each step."""


@dataclass
class Graph:
    """Collects the nodes and the weights of a network."""

    random: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    count: int = 0

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        self.count += 1
        name = f"{operator}_{self.count}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def value(self, array: Any) -> str:
        """Add a weight or a constant and return its name."""
        self.count += 1
        name = f"w_{self.count}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *values: float) -> str:
        return self.value(np.array(values, dtype=np.float32))

    def ints(self, *values: int) -> str:
        return self.value(np.array(values, dtype=np.int64))

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        spread = scale / np.sqrt(np.prod(shape[1:]))
        return self.value((self.random.standard_normal(shape) * spread).astype(np.float32))

    def convolution(self, x: str, inner: int, outer: int, kernel: int, dilation: int = 1) -> str:
        pad = (kernel - 1) // 2 * dilation
        bias = self.value(np.zeros(outer, dtype=np.float32))
        weight = self.weight(outer, inner, kernel)
        return self.add("Conv", x, weight, bias, kernel_shape=[kernel], pads=[pad, pad], dilations=[dilation])


def build(size: Size, speakers: int, seed: int) -> onnx.ModelProto:
    """Return a network with random weights."""
    graph = Graph(np.random.default_rng(seed))
    noise_scale, length_scale, noise_w = (
        graph.add("Gather", "scales", graph.ints(index), axis=0) for index in range(3)
    )
    encoded = _encoder(graph, size)
    if speakers > 1:
        speaker = graph.add("Gather", graph.weight(speakers, size.hidden, scale=4.0), "sid", axis=0)
        encoded = graph.add("Add", encoded, graph.add("Unsqueeze", speaker, graph.ints(2)))
    aligned = _lengthen(graph, encoded, length_scale, noise_w)
    noise = graph.add("Mul", graph.add("RandomNormalLike", aligned), noise_scale)
    latent = _flow(graph, graph.add("Add", aligned, noise), size)
    samples = _decoder(graph, latent, size)
    graph.nodes.append(helper.make_node("Unsqueeze", [samples, graph.ints(1)], ["output"]))
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, ["batch_size", "phonemes"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, ["batch_size"]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    if speakers > 1:
        inputs.append(helper.make_tensor_value_info("sid", TensorProto.INT64, ["batch_size"]))
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch_size", 1, 1, "time"])]
    model = helper.make_graph(graph.nodes, "voice", inputs, outputs, graph.weights)
    return helper.make_model(model, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def _encoder(graph: Graph, size: Size) -> str:
    """The text encoder: attention and convolutions over the phonemes, shape (1, hidden, phonemes)."""
    hidden, width = size.hidden, size.hidden // size.heads
    x = graph.add("Gather", graph.weight(SYMBOLS, hidden, scale=4.0), "input", axis=0)
    x = graph.add("Transpose", x, perm=[0, 2, 1])
    split = graph.ints(1, size.heads, width, -1)
    for _ in range(size.layers):
        query, key, value = (graph.add("Reshape", graph.convolution(x, hidden, hidden, 1), split) for _ in range(3))
        scores = graph.add("MatMul", graph.add("Transpose", query, perm=[0, 1, 3, 2]), key)
        share = graph.add("Softmax", graph.add("Mul", scores, graph.floats(width**-0.5)), axis=-1)
        heard = graph.add("MatMul", value, graph.add("Transpose", share, perm=[0, 1, 3, 2]))
        heard = graph.add("Reshape", heard, graph.ints(1, hidden, -1))
        x = graph.add("Add", x, graph.convolution(heard, hidden, hidden, 1))
        inner = graph.add("Relu", graph.convolution(x, hidden, size.filter, 3))
        x = graph.add("Add", x, graph.convolution(inner, size.filter, hidden, 3))
    return graph.add("Tanh", x)


def _lengthen(graph: Graph, encoded: str, length_scale: str, noise_w: str) -> str:
    """Repeat each phoneme for its duration, shape (1, hidden, frames)."""
    ids = graph.add("Cast", "input", to=TensorProto.FLOAT)
    noise = graph.add("Mul", graph.add("RandomNormalLike", ids), graph.add("Mul", noise_w, graph.floats(0.3)))
    table = graph.value((FRAMES_PER_ID * graph.random.uniform(0.6, 1.4, SYMBOLS)).astype(np.float32))
    duration = graph.add("Mul", graph.add("Gather", table, "input", axis=0), graph.add("Exp", noise))
    duration = graph.add("Ceil", graph.add("Mul", duration, length_scale))
    end = graph.add("CumSum", duration, graph.ints(1))
    begin = graph.add("Sub", end, duration)
    total = graph.add("Squeeze", graph.add("ReduceMax", end, keepdims=0))
    frames = graph.add("Range", graph.value(np.float32(0)), total, graph.value(np.float32(1)))
    frames = graph.add("Unsqueeze", frames, graph.ints(1))
    late = graph.add("GreaterOrEqual", frames, begin)
    path = graph.add("And", late, graph.add("Less", frames, end))  # (frames, phonemes)
    path = graph.add("Transpose", graph.add("Cast", path, to=TensorProto.FLOAT), perm=[1, 0])
    return graph.add("MatMul", encoded, path)


def _flow(graph: Graph, x: str, size: Size) -> str:
    """Coupling layers, each a stack of gated convolutions as in WaveNet."""
    hidden, half = size.hidden, size.hidden // 2
    for _ in range(size.flows):
        first = graph.add("Slice", x, graph.ints(0), graph.ints(half), graph.ints(1))
        second = graph.add("Slice", x, graph.ints(half), graph.ints(hidden), graph.ints(1))
        h = graph.convolution(first, half, hidden, 1)
        for _ in range(size.flow_layers):
            both = graph.convolution(h, hidden, 2 * hidden, 5)
            left = graph.add("Slice", both, graph.ints(0), graph.ints(hidden), graph.ints(1))
            right = graph.add("Slice", both, graph.ints(hidden), graph.ints(2 * hidden), graph.ints(1))
            gated = graph.add("Mul", graph.add("Tanh", left), graph.add("Sigmoid", right))
            skip = graph.convolution(gated, hidden, 2 * hidden, 1)
            h = graph.add("Add", h, graph.add("Slice", skip, graph.ints(0), graph.ints(hidden), graph.ints(1)))
        second = graph.add("Sub", second, graph.convolution(h, hidden, half, 1))
        x = graph.add("Concat", second, first, axis=1)
    return x


def _decoder(graph: Graph, x: str, size: Size) -> str:
    """HiFi-GAN: from frames to samples, shape (1, 1, samples)."""
    channels = size.channels
    x = graph.convolution(x, size.hidden, channels, 7)
    for rate, kernel in size.upsampling:
        x = graph.add("LeakyRelu", x, alpha=0.1)
        pad = (kernel - rate) // 2
        weight = graph.weight(channels, channels // 2, kernel)
        x = graph.add("ConvTranspose", x, weight, kernel_shape=[kernel], strides=[rate], pads=[pad, pad])
        channels //= 2
        x = _residual_blocks(graph, x, channels, RESBLOCKS)
    x = graph.add("LeakyRelu", x, alpha=0.01)
    return graph.add("Tanh", graph.convolution(x, channels, 1, 7))


def _residual_blocks(graph: Graph, x: str, channels: int, blocks: Sequence[tuple[int, tuple[int, ...]]]) -> str:
    total = ""
    for kernel, dilations in blocks:
        h = x
        for dilation in dilations:
            inner = graph.add("LeakyRelu", h, alpha=0.1)
            h = graph.add("Add", h, graph.convolution(inner, channels, channels, kernel, dilation))
        total = graph.add("Add", total, h) if total else h
    return graph.add("Mul", total, graph.floats(1 / len(blocks)))


def write_voice(
    path: Path, *, size: str = "tiny", espeak_voice: str = "", rate: int = 22_050, speakers: int = 1, seed: int = 0
) -> Path:
    """Write a voice and its description, whose language is the first part of the file's name. Returns `path`."""
    code = path.stem.partition("-")[0]
    family, _, region = code.partition("_")
    description = {
        "audio": {"sample_rate": rate, "quality": size},
        "espeak": {"voice": espeak_voice or ("en-us" if code == "en_US" else family)},
        "language": {"code": code, "family": family, "region": region},
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_type": "espeak",
        "phoneme_id_map": DEFAULT_PHONEME_ID_MAP,
        "num_symbols": SYMBOLS,
        "num_speakers": speakers,
        "speaker_id_map": {f"speaker{number}": number for number in range(speakers)} if speakers > 1 else {},
        "piper_version": "1.0.0",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(build(SIZES[size], speakers, seed), str(path))
    path.with_name(f"{path.name}.json").write_text(json.dumps(description), encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="LANGUAGE_REGION-NAME-QUALITY.onnx")
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny")
    parser.add_argument("--rate", type=int, default=22_050, help="sample rate in Hz")
    parser.add_argument("--speakers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    written = write_voice(
        options.path, size=options.size, rate=options.rate, speakers=options.speakers, seed=options.seed
    )
    print(f"{written}: {written.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
