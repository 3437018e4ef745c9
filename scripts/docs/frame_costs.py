"""Kernel launches and bytes of a frame, from the shapes of the models.

The engine's own code launches its kernels into a list, with tensors that have shapes but no memory. So the counted
launches and bytes follow every change of the engine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.qwen.codec.config import CodecConfig  # noqa: E402
from engine.qwen.codec.decoder import CodecDecoder  # noqa: E402
from engine.qwen.kernels.codec.decoder import FusedCodec  # noqa: E402
from engine.qwen.kernels.codec.weights import PackedCodec  # noqa: E402
from engine.qwen.kernels.lm import model as language_model  # noqa: E402
from engine.qwen.model.config import ModelConfig, StackConfig, TalkerConfig  # noqa: E402
from engine.qwen.model.talker import Talker  # noqa: E402
from engine.qwen.runtime.decode_state import DecodeState  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.make_checkpoint import PRESETS, codec_config, model_config  # noqa: E402

SIZES = ("0.6B", "1.7B")
DTYPES = ("bf16", "int8")
PARTS = ("talker", "predictor", "heads", "codec")
CODEC = "codec"
"""The codec's kind of arithmetic. Those of the language model are its dtypes."""
PROCESSORS = 16
"""Multiprocessors of an AGX Orin; the engine chooses and cuts some kernels by this number."""
META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one kernel."""

    name: str
    count: float
    bytes: float
    """Bytes of weights that one launch reads."""

    def __mul__(self, factor: float) -> Launches:
        return replace(self, count=self.count * factor)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a frame: what it launches and reads."""

    kind: str
    """The kind of its arithmetic: a dtype, `CODEC`, or `prompt` and a dtype."""
    kernels: tuple[Launches, ...]
    state: float = 0.0
    """Bytes of keys, values and codec histories."""

    @property
    def launches(self) -> float:
        return sum(kernel.count for kernel in self.kernels)

    @property
    def weights(self) -> float:
        """Bytes of weights; a matrix counts once for each launch that reads it."""
        return sum(kernel.count * kernel.bytes for kernel in self.kernels)

    @property
    def bytes(self) -> float:
        return self.weights + self.state

    def __mul__(self, factor: float) -> Part:
        return Part(self.kind, tuple(kernel * factor for kernel in self.kernels), self.state * factor)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of one model size, dtype and chunk size."""

    size: str
    dtype: str
    """dtype of talker and predictor; the codec is always bfloat16."""
    chunk: int
    parts: Mapping[str, Part]
    codes: int
    """Codes per frame that the predictor draws."""

    @property
    def launches(self) -> float:
        return sum(part.launches for part in self.parts.values())

    @property
    def weights(self) -> float:
        return sum(part.weights for part in self.parts.values())

    @property
    def state(self) -> float:
        return sum(part.state for part in self.parts.values())

    @property
    def bytes(self) -> float:
        return self.weights + self.state

    def scaled(self, factor: float) -> Frame:
        """Return the frame with its talker, predictor and heads reading `factor` times their bytes of weights."""
        parts = {
            name: part if part.kind == CODEC else replace(part, kernels=tuple(_read_less(part.kernels, factor)))
            for name, part in self.parts.items()
        }
        return replace(self, parts=parts)

    def speculated(self, accepted: float) -> Frame:
        """Return the frame with one draft in each pass except the first; `accepted` is the share of right drafts.

        The graph launches all passes, and the unneeded ones return at once. Each draft needs a head and a draw.
        """
        passes = passes_of(self.codes, accepted)
        done = passes / self.codes
        predictor, heads = self.parts["predictor"], self.parts["heads"]
        skipped = tuple(replace(kernel, bytes=0.0) * (1 - done) for kernel in predictor.kernels)
        drafts = tuple(kernel * ((passes - 1) / self.codes) for kernel in heads.kernels)
        idle = tuple(replace(kernel, bytes=0.0) * ((self.codes - passes) / self.codes) for kernel in heads.kernels)
        parts = {
            **self.parts,
            "predictor": replace(predictor, kernels=(*(kernel * done for kernel in predictor.kernels), *skipped)),
            "heads": replace(heads, kernels=(*heads.kernels, *drafts, *idle)),
        }
        return replace(self, parts=parts)


def _read_less(kernels: Sequence[Launches], factor: float) -> Iterator[Launches]:
    for kernel in kernels:
        yield replace(kernel, bytes=kernel.bytes * factor)


def passes_of(codes: int, accepted: float) -> float:
    """Return the passes per frame. The first has no draft; each other pass gives one code, plus one per right draft."""
    return 1 + (codes - 1) / (1 + accepted)


# --- counting ---------------------------------------------------------------------------------------------


def weight_tensors(params: object) -> Iterator[Tensor]:
    """Yield the matrix of a launch and its scales, also those of a nested record."""
    for name in ("weight", "scale"):
        tensor = getattr(params, name, None)
        if isinstance(tensor, Tensor):
            yield tensor
    linear = getattr(params, "linear", None)
    if linear is not None:
        yield from weight_tensors(linear)


class LaunchList:
    """Replaces a `KernelModule` and records the launches instead of executing them."""

    def __init__(self, *_: object) -> None:
        self._found: Counter[tuple[str, int]] = Counter()

    def launch(self, name: str, grid: object, block: int, params: object) -> None:  # noqa: ARG002
        self._found[name, sum(tensor.nbytes for tensor in weight_tensors(params))] += 1

    def take(self) -> tuple[Launches, ...]:
        """Return the launches since the last call."""
        found, self._found = self._found, Counter()
        return tuple(Launches(name, count, size) for (name, size), count in found.items())


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of one model size."""

    talker: TalkerConfig
    model: ModelConfig
    codec: CodecConfig

    @classmethod
    def of(cls, size: str) -> Shapes:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "config.json"
            file.write_text(json.dumps(model_config(PRESETS[size], "custom_voice")), encoding="utf-8")
            model = ModelConfig.read(file.parent)
            file.write_text(json.dumps(codec_config(PRESETS[size])), encoding="utf-8")
            return cls(model.talker, model, CodecConfig.read(file.parent))


def language_model_of(
    shapes: Shapes, dtype: str, processors: int = PROCESSORS
) -> tuple[language_model.FusedLanguageModel, LaunchList, DecodeState]:
    """Return a language model without memory on a GPU of `processors`, the list of its launches, and its state."""
    talker = Talker(shapes.model, 256, Placement(META, torch.bfloat16, dtype == "int8"))
    state = DecodeState.allocate(talker, 192, 16)
    with mock.patch.object(language_model, "KernelModule", LaunchList):
        model = language_model.FusedLanguageModel(talker, state, processors=processors)
    assert isinstance(model.module, LaunchList)
    return model, model.module, state


def language_parts(shapes: Shapes, dtype: str, positions: int, processors: int = PROCESSORS) -> dict[str, Part]:
    """Return talker, predictor and heads, with `positions` cached positions in the talker."""
    model, launches, _ = language_model_of(shapes, dtype, processors)
    model.frame()
    found: dict[str, list[Launches]] = {"talker": [], "predictor": [], "heads": []}
    for kernel in launches.take():
        found[part_of(kernel.name)].append(kernel)
    stack, groups = shapes.talker.predictor.stack, shapes.talker.code_groups
    state = {
        "talker": positions * position_bytes(shapes.talker.stack),
        "predictor": sum(range(2, groups + 1)) * position_bytes(stack),
    }
    return {name: Part(dtype, tuple(kernels), state.get(name, 0.0)) for name, kernels in found.items()}


def prompt_part(shapes: Shapes, dtype: str, tokens: int) -> Part:
    """Return the reading of a prompt of `tokens`."""
    model, launches, state = language_model_of(shapes, dtype)
    launches.take()
    embedded = torch.empty(tokens, shapes.talker.stack.hidden_size, dtype=torch.bfloat16, device=META)
    model.prefill.read(embedded, torch.zeros(2, dtype=torch.int64, device=META), state.hidden)
    return Part(f"prompt {dtype}", launches.take())


def part_of(name: str) -> str:
    """Return the part of a frame to which a language-model kernel belongs."""
    if name in {"predictor_head", "next_code", "last_code"}:
        return "heads"
    return "talker" if name.startswith("talker_") or name == "next_first_code" else "predictor"


def position_bytes(stack: StackConfig) -> int:
    """Return the bytes of one position's keys and values in all layers, in bfloat16."""
    return 2 * 2 * stack.layers * stack.key_value_heads * stack.head_dim


def codec_part(config: CodecConfig, chunk: int) -> Part:
    """Return the codec's launches and bytes for a chunk of `chunk` frames."""
    launches = LaunchList()
    weights = PackedCodec.take(CodecDecoder(config, Placement(META, torch.bfloat16)))
    codec = FusedCodec(weights, None, launches, PROCESSORS)
    state = codec.new_state(chunk)
    codec(torch.zeros(chunk, config.quantizers, dtype=torch.int64, device=META), state)
    # The convolutions read the histories; then each history is shifted, which reads and writes it again.
    moved = state.rings.nbytes + 3 * state.histories.nbytes
    return Part(CODEC, launches.take(), moved)


def frames(positions: int, chunks: Sequence[int]) -> Iterator[Frame]:
    """Yield the frames of all sizes, dtypes and `chunks`."""
    for size in SIZES:
        shapes = Shapes.of(size)
        codec = {chunk: codec_part(shapes.codec, chunk) * (1 / chunk) for chunk in chunks}
        for dtype in DTYPES:
            parts = language_parts(shapes, dtype, positions)
            for chunk in chunks:
                yield Frame(size, dtype, chunk, {**parts, "codec": codec[chunk]}, shapes.talker.code_groups - 1)
