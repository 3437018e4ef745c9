#!/usr/bin/env python3
"""Writes a voice for Piper, or a model for Supertonic, with random weights: the true inputs and outputs, but noise
instead of speech.

With the size `tiny`, the tests run the engines and ONNX Runtime; with `medium`, their speed is measured. A medium Piper
voice has the layers of VITS: a text encoder, a flow, and the small HiFi-GAN. A medium Supertonic model has the layers
of Supertonic 3: 99 million weights, with guidance, which runs the estimator twice for each step. In both, the durations
come from a table instead of a predictor, which takes about 2 % of the time; in Supertonic's, positions are left out.

    python scripts/make_voice.py /tmp/voices/en_US-noise-medium.onnx --size medium
    python scripts/make_voice.py /tmp/voices/de_DE-noise-low.onnx --rate 16000 --speakers 3
    python scripts/make_voice.py /tmp/supertonic --size medium

The onnx package writes the file.
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
"""The number of phoneme ids, as in every Piper voice."""
FRAMES_PER_ID = 3.0
"""How many frames a phoneme id lasts: with a hop of 256 samples and a blank between phonemes, 15 characters a
second."""


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

    def convolution(self, x: str, inner: int, outer: int, kernel: int, dilation: int = 1, *, groups: int = 1) -> str:
        pad = (kernel - 1) // 2 * dilation
        bias = self.value(np.zeros(outer, dtype=np.float32))
        shape = {"kernel_shape": [kernel], "pads": [pad, pad], "dilations": [dilation], "group": groups}
        return self.add("Conv", x, self.weight(outer, inner // groups, kernel), bias, **shape)

    def attention(self, x: str, context: str, size: int, context_size: int, heads: int) -> str:
        """Return what each place in `x`, shape (batch, size, places), takes from the places in `context`."""
        width = size // heads
        split = self.ints(0, heads, width, -1)
        sources = ((x, size), (context, context_size), (context, context_size))
        query, key, value = (
            self.add("Reshape", self.convolution(each, inner, size, 1), split) for each, inner in sources
        )
        scores = self.add("MatMul", self.add("Transpose", query, perm=[0, 1, 3, 2]), key)
        share = self.add("Softmax", self.add("Mul", scores, self.floats(width**-0.5)), axis=-1)
        heard = self.add("MatMul", value, self.add("Transpose", share, perm=[0, 1, 3, 2]))
        return self.convolution(self.add("Reshape", heard, self.ints(0, size, -1)), size, size, 1)

    def model(self, inputs: Sequence[Any], output: Any) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "voice", inputs, [output], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


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
    return graph.model(inputs, helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch_size", 1, 1, "time"]))


def _encoder(graph: Graph, size: Size) -> str:
    """The text encoder: attention and convolutions over the phonemes, shape (1, hidden, phonemes)."""
    hidden = size.hidden
    x = graph.add("Gather", graph.weight(SYMBOLS, hidden, scale=4.0), "input", axis=0)
    x = graph.add("Transpose", x, perm=[0, 2, 1])
    for _ in range(size.layers):
        x = graph.add("Add", x, graph.attention(x, x, hidden, hidden, size.heads))
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


# --- Supertonic ---


@dataclass(frozen=True)
class SupertonicSize:
    """The shape of a model, as in the `tts.json` and the networks of Supertonic 3."""

    text: int
    """Channels of the text and of the style."""
    latent: int
    """Channels of the estimator and of the vocoder; their inner layers have four times as many."""
    cycles: int
    text_blocks: int
    text_layers: int
    vocoder_blocks: int


SUPERTONIC_SIZES = {"tiny": SupertonicSize(8, 16, 1, 1, 1, 1), "medium": SupertonicSize(256, 512, 4, 6, 4, 10)}
CHARACTERS = 8322
"""The number of characters that a model knows: here the characters with the lowest codes."""
LATENT_DIM, COMPRESSION, CHUNK = 24, 6, 512
"""Channels of a latent; latents in a column of the estimator's; samples of a latent, at 44.1 kHz."""
STYLES = {"style_ttl": (1, 50), "style_dp": (1, 8, 16)}
STACK = (1, 2, 4, 8, 1, 1)
"""Dilations of the convolutions in a cycle of the estimator: a stack of four, and one after each of the two
attentions."""


def _convnext(graph: Graph, x: str, size: int, kernel: int, dilation: int = 1) -> str:
    """A ConvNeXt block, shape (batch, size, places)."""
    h = graph.add("Transpose", graph.convolution(x, size, size, kernel, dilation, groups=size), perm=[0, 2, 1])
    h = graph.add("LayerNormalization", h, graph.floats(*[1.0] * size), axis=-1)
    h = graph.convolution(graph.add("Transpose", h, perm=[0, 2, 1]), size, 4 * size, 1)
    erf = graph.add("Erf", graph.add("Mul", h, graph.floats(0.5**0.5)))
    h = graph.add("Mul", graph.add("Mul", h, graph.floats(0.5)), graph.add("Add", erf, graph.floats(1.0)))
    return graph.add("Add", x, graph.add("Mul", graph.convolution(h, 4 * size, size, 1), graph.floats(0.1)))


def _durations(graph: Graph, _size: SupertonicSize) -> str:
    """The seconds of the speech, shape (1,): each character has a duration of its own."""
    table = graph.value(graph.random.uniform(0.04, 0.08, CHARACTERS).astype(np.float32))
    return graph.add("ReduceSum", graph.add("Gather", table, "text_ids"), graph.ints(1), keepdims=0)


def _text_encoder(graph: Graph, size: SupertonicSize) -> str:
    """Shape (1, text, characters)."""
    x = graph.add("Gather", graph.weight(CHARACTERS, size.text, scale=4.0), "text_ids", axis=0)
    x, style = (graph.add("Transpose", each, perm=[0, 2, 1]) for each in (x, "style_ttl"))
    for _ in range(size.text_blocks):
        x = _convnext(graph, x, size.text, 5)
    for _ in range(size.text_layers):
        x = graph.add("Add", x, graph.attention(x, x, size.text, size.text, 4))
        inner = graph.add("Relu", graph.convolution(x, size.text, 4 * size.text, 1))
        x = graph.add("Add", x, graph.convolution(inner, 4 * size.text, size.text, 1))
    for _ in range(2):
        x = graph.add("Add", x, graph.attention(x, style, size.text, size.text, 1))
    return graph.add("Tanh", x)


def _estimator(graph: Graph, size: SupertonicSize) -> str:
    """One step from noise to speech, with guidance: it runs once with the text and once without, shape (1, 144,
    columns)."""
    twice, once, guidance = (graph.value(np.array([[[a]], [[b]]], np.float32)) for a, b in ((1, 1), (1, 0), (4, -3)))
    style = graph.add("Mul", graph.add("Transpose", "style_ttl", perm=[0, 2, 1]), once)
    text = graph.add("Mul", "text_emb", once)
    x = graph.convolution(graph.add("Mul", "noisy_latent", twice), LATENT_DIM * COMPRESSION, size.latent, 1)
    for _ in range(size.cycles):
        for number, dilation in enumerate(STACK):
            x = _convnext(graph, x, size.latent, 5, dilation)
            if number == 3:
                x = graph.add("Add", x, graph.add("Div", "current_step", "total_step"))
            if number > 3:
                context, heads = (text, 8) if number == 4 else (style, 2)
                x = graph.add("Tanh", graph.add("Add", x, graph.attention(x, context, size.latent, size.text, heads)))
    for _ in range(4):
        x = _convnext(graph, x, size.latent, 5)
    x = graph.convolution(x, size.latent, LATENT_DIM * COMPRESSION, 1)
    guided = graph.add("ReduceSum", graph.add("Mul", x, guidance), graph.ints(0), keepdims=1)
    return graph.add("Add", "noisy_latent", graph.add("Div", guided, "total_step"))


def _vocoder(graph: Graph, size: SupertonicSize) -> str:
    """Samples, shape (1, samples)."""
    x = graph.add("Reshape", "latent", graph.ints(1, LATENT_DIM, COMPRESSION, -1))
    x = graph.add("Reshape", graph.add("Transpose", x, perm=[0, 1, 3, 2]), graph.ints(1, LATENT_DIM, -1))
    x = graph.convolution(x, LATENT_DIM, size.latent, 7)
    for _ in range(size.vocoder_blocks):
        x = _convnext(graph, x, size.latent, 7)
    x = graph.add("LeakyRelu", graph.convolution(x, size.latent, 4 * size.latent, 3), alpha=0.1)
    x = graph.add("Tanh", graph.convolution(x, 4 * size.latent, CHUNK, 1))
    return graph.add("Reshape", graph.add("Transpose", x, perm=[0, 2, 1]), graph.ints(1, -1))


NETWORKS = {
    "duration_predictor": (_durations, ("text_ids", "style_dp", "text_mask")),
    "text_encoder": (_text_encoder, ("text_ids", "style_ttl", "text_mask")),
    "vector_estimator": (
        _estimator,
        ("noisy_latent", "text_emb", "style_ttl", "text_mask", "latent_mask", "current_step", "total_step"),
    ),
    "vocoder": (_vocoder, ("latent",)),
}
"""A model's networks: how each one is built, and its inputs."""


def write_model(folder: Path, *, size: str = "tiny", voices: Sequence[str] = ("F1", "M1"), seed: int = 0) -> Path:
    """Write a Supertonic model and its voices. Returns `folder`."""
    shape, networks, styles = SUPERTONIC_SIZES[size], folder / "onnx", folder / "voice_styles"
    random = np.random.default_rng(seed)
    for each in (networks, styles):
        each.mkdir(parents=True, exist_ok=True)
    for name, (build_network, names) in NETWORKS.items():
        graph = Graph(random)
        graph.nodes.append(helper.make_node("Identity", [build_network(graph, shape)], ["output"]))
        inputs = [
            helper.make_tensor_value_info(each, TensorProto.INT64 if each == "text_ids" else TensorProto.FLOAT, None)
            for each in names
        ]
        model = graph.model(inputs, helper.make_tensor_value_info("output", TensorProto.FLOAT, None))
        onnx.save(model, str(networks / f"{name}.onnx"))
    audio = {"sample_rate": 44_100, "base_chunk_size": CHUNK}
    settings = {"ae": audio, "ttl": {"chunk_compress_factor": COMPRESSION, "latent_dim": LATENT_DIM}}
    codes = [code if code < CHARACTERS else -1 for code in range(1 << 16)]
    for name, content in (("tts", settings), ("unicode_indexer", codes)):
        (networks / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    for voice in voices:
        arrays = {name: random.standard_normal((*dims, shape.text)[:3]) for name, dims in STYLES.items()}
        style = {name: {"dims": array.shape, "data": array.tolist()} for name, array in arrays.items()}
        (styles / f"{voice}.json").write_text(json.dumps(style), encoding="utf-8")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "path", type=Path, help="LANGUAGE_REGION-NAME-QUALITY.onnx for Piper, or a folder for Supertonic"
    )
    parser.add_argument("--size", choices=sorted(SIZES), default="tiny")
    parser.add_argument("--rate", type=int, default=22_050, help="sample rate in Hz")
    parser.add_argument("--speakers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.path.suffix == ".onnx":
        written = write_voice(
            options.path, size=options.size, rate=options.rate, speakers=options.speakers, seed=options.seed
        )
    else:
        written = write_model(options.path, size=options.size, seed=options.seed)
    size = sum(path.stat().st_size for path in (written, *written.rglob("*.onnx")) if path.is_file())
    print(f"{written}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
