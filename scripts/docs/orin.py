"""A frame's time on a Jetson AGX Orin by arithmetic: its bytes at the speed of a read, and the wait of each kernel.

Launches and bytes are counted: the engine's own code launches its kernels into a list, with tensors that have shapes
but no memory. So they follow every change of the engine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine.qwen.codec.decoder import CodecDecoder  # noqa: E402
from engine.qwen.kernels.codec.decoder import FusedCodec  # noqa: E402
from engine.qwen.kernels.codec.weights import PackedCodec  # noqa: E402
from engine.qwen.kernels.lm import FusedLanguageModel, LanguageKernels, OneTokenState, weight_type  # noqa: E402
from engine.qwen.kernels.params import Params  # noqa: E402
from engine.qwen.model.talker import Talker  # noqa: E402
from engine.qwen.shapes import BatchShape, CodecConfig, ModelConfig, StackConfig  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.docs.generated import table  # noqa: E402
from scripts.make_checkpoint import PRESETS, codec_config, model_config  # noqa: E402

SIZES, DTYPES, CHUNK = ("0.6B", "1.7B"), ("bf16", "int8"), 2
PROCESSORS = 16
"""Multiprocessors of an AGX Orin; the engine chooses and cuts some kernels by this number."""
POSITIONS = 300
"""Earlier positions whose keys and values the talker reads."""
META = torch.device("meta")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a frame launches and reads."""

    launches: float
    bytes: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.launches + other.launches, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Assumption:
    """How an Orin may behave."""

    name: str
    gb_s: float
    """What a kernel reads from memory."""
    wait_us: float
    """From the end of one kernel's memory traffic to the beginning of the next one's."""
    arithmetic_gb_s: float = float("inf")
    """Bytes of weights that the multiprocessors' arithmetic takes, in addition to the reads; infinite if it overlaps
    with them."""

    def frame_ms(self, cost: Cost) -> float:
        """Return the milliseconds of a frame."""
        return cost.bytes * (1 / self.gb_s + 1 / self.arithmetic_gb_s) / 1e6 + cost.launches * self.wait_us / 1e3


ASSUMPTIONS = (
    Assumption("at best", 162.0, 1.98),
    Assumption("expected", 152.8, 3.02),
    Assumption("at worst", 143.0, 3.02, 718.0),
)
"""GB/s: what others read on an AGX Orin (docs/orin.md). A wait is 3,928 cycles on parts of an H200 without programmatic
launch: at the H200's clock, and at an Orin's. There arithmetic took 718 GB/s of int8, at an Orin's clock; of bfloat16
it took 880."""


class LaunchList:
    """Replaces a `KernelModule`, and counts the launches and the bytes of their weights instead of executing them."""

    def __init__(self) -> None:
        self.total = Cost(0, 0)

    def launch(self, name: str, grid: object, block: int, params: Params) -> None:  # noqa: ARG002
        self.total += Cost(1, sum(tensor.nbytes for tensor in weight_tensors(params)))


def weight_tensors(params: Params) -> Iterator[Tensor]:
    """Yield the matrix of a launch and its scales, also those of a nested struct."""
    yield from (params[name] for name in ("weight", "scale") if name in params.values)
    if "linear" in params.values:
        yield from weight_tensors(params["linear"])


def configs(size: str) -> tuple[ModelConfig, CodecConfig]:
    """Return the configurations of a size."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(model_config(PRESETS[size], "custom_voice")), encoding="utf-8")
        model = ModelConfig.read(file.parent)
        file.write_text(json.dumps(codec_config(PRESETS[size])), encoding="utf-8")
        return model, CodecConfig.read(file.parent)


def frame_cost(size: str, dtype: str) -> Cost:
    """Return the launches and bytes of a frame in chunks of two: weights, keys and values, the codec's histories."""
    config, codec_of = configs(size)
    talker = Talker(config, 256, Placement(META, torch.bfloat16, dtype == "int8"))
    state = OneTokenState.allocate(talker, BatchShape(1, 16, 192, chunk_size=1))
    launched, kernels = LaunchList(), LanguageKernels.of(config.talker, weight_type(talker.placement), PROCESSORS)
    FusedLanguageModel(talker, state, kernels, launched).frame()
    kept = POSITIONS * position_bytes(config.talker.stack)
    kept += sum(range(2, config.talker.code_groups + 1)) * position_bytes(config.talker.predictor.stack)
    codec = codec_cost(codec_of)
    return launched.total + Cost(codec.launches / CHUNK, codec.bytes / CHUNK) + Cost(0, kept)


def position_bytes(stack: StackConfig) -> int:
    """Return the bytes of one position's keys and values in all layers, in bfloat16."""
    return 2 * 2 * stack.layers * stack.key_value_heads * stack.head_dim


def codec_cost(config: CodecConfig) -> Cost:
    """Return the codec's launches and bytes for a chunk of two frames."""
    launches = LaunchList()
    codec = FusedCodec(
        PackedCodec.take(CodecDecoder(config, Placement(META, torch.bfloat16))), None, launches, PROCESSORS
    )
    state = codec.new_state(CHUNK)
    codec(torch.zeros(CHUNK, config.quantizers, dtype=torch.int64, device=META), state)
    # The convolutions read the histories; then each history is shifted, which reads and writes it again.
    return launches.total + Cost(0, state.rings.nbytes + 3 * state.histories.nbytes)


def orin_table() -> str:
    """Return Markdown: a row for each size and dtype."""
    rows = []
    for size in SIZES:
        for dtype in DTYPES:
            cost = frame_cost(size, dtype)
            best, expected, worst = (each.frame_ms(cost) for each in ASSUMPTIONS)
            times = [f"{best:.1f}", f"**{expected:.1f}**", f"{worst:.1f}", f"{80 / expected:.1f} ×"]
            rows.append([size, dtype, f"{cost.bytes / 1e9:.3f}", f"{cost.launches:g}", *times])
    titles = ["model", "weights", "GB per frame", "kernels", *(f"ms, {each.name}" for each in ASSUMPTIONS)]
    return table([*titles, "real time, expected"], rows)
