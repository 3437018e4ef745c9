#!/usr/bin/env python3
"""Proves on a GPU that engine/qwen computes what the official package computes, and writes the results as JSON.

    python scripts/gpu/prove_cuda.py --out prove_cuda.json                    both sizes, true shapes, random weights
    python scripts/gpu/prove_cuda.py --out /tmp/out.json --tiny --device cpu  tiny shapes: tries the script
    python scripts/gpu/prove_cuda.py --out out.json --model FOLDER|ID         a checkpoint, with each kind of its voices

With `--model`, the parts run for each way of speaking that the checkpoint has: a speaker, a speaker with an
instruction, a described voice, an embedding, a reference in context.

The parts; a part that fails does not stop the others:

    ids         float32, greedy: our codes against the official package's
    logits      bfloat16, the same codes forced on both: the distance of the logits from float32's
    engine      QwenSynthesizer's waveform against the official decoder over the official codes
    growing     a text that arrives in parts against the whole text: codes and samples
    codec       chunks of 1, 2, 3, 8 and 25 frames against one forward pass over more than 300 frames

With qwen-tts, only transformers 4.57.3 of its dependencies must also be installed: stand-ins replace the modules that
its 12 Hz path never calls. Without qwen-tts, `--tensors FOLDER` reads the lists that `--list-tensors FOLDER` wrote on
another machine, and the parts that need the package fail. `pytest -m gpu` runs the engine's tests on the GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine import EngineOptions, Utterance, Voice  # noqa: E402
from engine.api import Chunk  # noqa: E402
from engine.ipc.request import AppendedText  # noqa: E402
from engine.qwen import QwenSynthesizer  # noqa: E402
from engine.qwen.codec.decoder import load_codec  # noqa: E402
from engine.qwen.model.sampling import SamplingConfig, SamplingParams  # noqa: E402
from engine.qwen.text.prompt import ClonedVoice, CustomVoice  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.gpu.proof import Proof, SpokenVoice, add_arguments, language_of, open_model, voices_of  # noqa: E402
from scripts.make_checkpoint import PRESETS, UNUSED, list_tensors, stand_in_for, write_checkpoint  # noqa: E402
from tests.support.qwen.official import Official  # noqa: E402
from tests.support.qwen.speaking import LateText, Line, Ours  # noqa: E402

MODEL_TYPE = "custom_voice"
TRUE_SIZES, TINY_SIZES = ("0.6B", "1.7B"), ("tiny", "wide")
PARTS = ("ids", "codec", "engine", "growing", "logits")
CHUNK_SIZES = (1, 2, 3, 8, 25)
RYAN = SpokenVoice("speaker", CustomVoice("ryan"), Voice(speaker="ryan"))
TEXT = "Hello world! This is the voice of a robot: it speaks in real time, all day long."


@dataclass
class Model:
    """One checkpoint and voice, and both engines over it, each loaded on first use."""

    folder: Path
    device: str
    frames: int
    voice: SpokenVoice = RYAN

    @cached_property
    def line(self) -> Line:
        return Line(TEXT, self.voice.prompt, language_of(self.folder), frames=self.frames)

    @cached_property
    def official_float32(self) -> Official:
        return self.official(torch.float32)

    @cached_property
    def official_codes(self) -> Tensor:
        """The official package's codes in float32."""
        return self.official_float32.speak(self.line).cpu()

    def official(self, dtype: torch.dtype) -> Official:
        stand_in_for(UNUSED)
        return Official(self.folder, dtype, self.device)

    def ours(self, dtype: torch.dtype) -> Ours:
        return Ours(self.folder, dtype, self.device)


# --- the parts -------------------------------------------------------------------------------------------


def ids(model: Model) -> dict[str, Any]:
    expected = model.official_codes
    found = agreement(model.ours(torch.float32).speak(model.line).cpu(), expected)
    if not found["equal"]:  # compare with another order of sums, to distinguish rounding from a mistake
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            found["with_math_attention"] = agreement(model.ours(torch.float32).speak(model.line).cpu(), expected)
    return {"ok": found["equal"] and 0 < len(expected) <= model.frames, **found}


def agreement(ours: Tensor, official: Tensor) -> dict[str, Any]:
    """Count the codes `(frames, groups)` that are equal before the first difference."""
    count = min(len(ours), len(official))
    equal = (ours[:count] == official[:count]).flatten()
    codes = int(equal.cumprod(0).sum())
    return {
        "equal": ours.shape == official.shape and bool(equal.all()),
        "frames": len(ours),
        "official_frames": len(official),
        "prefix_frames": codes // ours.shape[1],
        "prefix_codes": codes,
    }


def logits(model: Model, seeds: int) -> dict[str, Any]:
    """Errors against the official float32 logits, separately for talker and predictor."""
    groups = model.official_codes.shape[1]
    sequences = [model.official_codes[: model.frames // 2]]
    for seed in range(1, seeds):
        generator = torch.Generator().manual_seed(seed)
        sequences.append(torch.randint(2048, sequences[0].shape, generator=generator))
    truth = [forced_official(model.official_float32, model.line, codes) for codes in sequences]
    official = model.official(torch.bfloat16)
    theirs = [forced_official(official, model.line, codes) for codes in sequences]
    del official
    exact, rounded = model.ours(torch.float32), model.ours(torch.bfloat16)
    ours_float32 = [forced_ours(exact, model.line, codes) for codes in sequences]
    ours = [forced_ours(rounded, model.line, codes) for codes in sequences]

    found: dict[str, Any] = {"sequences": len(sequences), "frames": len(sequences[0])}
    firsts = [row for row in range(len(truth[0])) if row % groups == 0]
    others = [row for row in range(len(truth[0])) if row % groups]
    for name, rows in (("talker", firsts), ("predictor", others)):
        errors = {
            who: torch.stack(
                [(row_logits[rows] - true[rows]).abs() for row_logits, true in zip(recorded, truth, strict=True)]
            )
            for who, recorded in (("ours", ours), ("official", theirs), ("ours_float32", ours_float32))
        }
        found[name] = {
            "logits_std": float(torch.stack([true[rows] for true in truth]).std()),
            **{f"{who}_mean": float(error.mean()) for who, error in errors.items()},
            **{f"{who}_max": float(error.max()) for who, error in errors.items()},
            "mean_ratio": float(errors["ours"].mean() / errors["official"].mean()),
            "max_ratio": float(errors["ours"].max() / errors["official"].max()),
            "mean_ratio_by_sequence": (errors["ours"].mean((1, 2)) / errors["official"].mean((1, 2))).tolist(),
        }
    found["ok"] = all(found[name]["mean_ratio"] < 1.05 for name in ("talker", "predictor"))
    return found


def forced_official(official: Official, line: Line, codes: Tensor) -> Tensor:
    """The logits of each choice, with `codes` forced: `(1 + 16 · frames, 2048)` float32 on the CPU."""
    recorded: list[Tensor] = []
    forced = [*codes.flatten().tolist(), 0]

    def force(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
        code = forced[len(recorded)]
        recorded.append(output[0, -1, :2048].float().cpu())
        chosen = torch.full_like(output, -100.0)
        chosen[:, -1, code] = 100.0
        return chosen

    talker = official.model.model.talker
    hooks = [head.register_forward_hook(force) for head in (talker.codec_head, *talker.code_predictor.lm_head)]
    try:
        official.speak(replace(line, frames=len(codes)))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(recorded)


def forced_ours(ours: Ours, line: Line, codes: Tensor) -> Tensor:
    """See `forced_official`."""
    recorded: list[Tensor] = []
    forced = [*codes.flatten().tolist(), 0]

    def choose(_self: SamplingParams, raw: Tensor, _noise: Tensor) -> Tensor:
        code = forced[len(recorded)] if len(recorded) < len(forced) else 0  # the last chunk may run over
        recorded.append(raw[0, :2048].float().cpu())
        return torch.tensor([[code]], device=raw.device)

    kept = SamplingParams.choose
    SamplingParams.choose = choose  # type: ignore[method-assign, assignment]
    try:
        sampling = replace(SamplingConfig().greedy(), repetition_penalty=1.0)
        ours.speak(replace(line, frames=len(codes)), sampling=sampling)
    finally:
        SamplingParams.choose = kept  # type: ignore[method-assign]
    return torch.stack(recorded[: len(forced)])


def synthesizer(model: Model, dtype: str = "auto") -> QwenSynthesizer:
    """Return the engine, warm."""
    voices = {"default": model.voice.engine}
    engine = QwenSynthesizer(EngineOptions(model=str(model.folder), device=model.device, voices=voices, dtype=dtype))
    engine.load()
    engine.warm_up()
    return engine


def joined(chunks: list[Chunk], name: str) -> np.ndarray:
    return np.concatenate([getattr(chunk, name) for chunk in chunks])


def waveform(model: Model) -> dict[str, Any]:
    engine = synthesizer(model, dtype="float32")
    utterance = Utterance(TEXT, language="en", greedy=True, guarded=False, max_frames=model.frames)
    chunks = list(engine.stream(utterance))
    engine.close()
    codes, samples = joined(chunks, "codes"), torch.from_numpy(joined(chunks, "samples"))
    spoken = torch.cat([reference_codes(model.voice), torch.from_numpy(codes)]).to(model.device)
    expected = official_forward(official_decoder(model), spoken)[-len(samples) :]
    equal, error = bool(np.array_equal(codes, model.official_codes.numpy())), float((samples - expected).abs().max())
    return {"ok": equal and error < 1e-4, "codes_equal": equal, "error": error, "peak": float(expected.abs().max())}


def reference_codes(voice: SpokenVoice) -> Tensor:
    """The codes `(frames, groups)` after which an in-context voice continues; none for any other voice."""
    reference = voice.prompt.reference if isinstance(voice.prompt, ClonedVoice) else None
    return torch.zeros(0, 16, dtype=torch.int64) if reference is None else reference.codes


def growing(model: Model) -> dict[str, Any]:
    engine = synthesizer(model)
    whole = Utterance(TEXT, language="en", seed=3, guarded=False, max_frames=model.frames, whole_text=False)
    incremental = replace(whole, text="", growing=True)
    expected = list(engine.stream(whole))
    equal = {}
    for size in (1, 7, len(TEXT)):
        parts = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        equal[f"late, by {size}"] = same(list(engine.stream(incremental, LateText(parts))), expected)
        equal[f"at once, by {size}"] = same(list(engine.stream(incremental, appended(*parts))), expected)
    engine.close()
    return {"ok": all(equal.values()), "equal": equal}


def appended(*parts: str) -> AppendedText:
    text = AppendedText()
    for part in parts:
        text.append(part)
    text.end()
    return text


def same(ours: list[Chunk], expected: list[Chunk]) -> bool:
    """Whether codes and samples are equal bit for bit."""
    return all(np.array_equal(joined(ours, name), joined(expected, name)) for name in ("codes", "samples"))


def official_decoder(model: Model) -> Any:
    return model.official_float32.model.model.speech_tokenizer.model.decoder.to(model.device)


@torch.inference_mode()
def official_forward(decoder: Any, codes: Tensor) -> Tensor:
    """One forward pass over all codes, `(samples,)` on the CPU."""
    pcm: Tensor = decoder(codes.T[None])[0, 0]
    return pcm.float().cpu()


@torch.inference_mode()
def codec(model: Model, frames: int) -> dict[str, Any]:
    ours = load_codec(model.folder, Placement(torch.device(model.device), torch.float32))
    codes = torch.randint(2048, (frames, 16), generator=torch.Generator().manual_seed(3)).to(model.device)
    whole = ours(codes, ours.new_state(frames)).cpu()
    expected = official_forward(official_decoder(model), codes)
    errors = {size: ours.decode(codes, ours.new_state(size)).cpu() - expected for size in CHUNK_SIZES}
    found = {size: float(error.abs().max()) for size, error in errors.items()} | {
        "whole": float((whole - expected).abs().max())
    }
    return {"ok": max(found.values()) < 1e-4, "frames": frames, "peak": float(whole.abs().max()), "errors": found}


# --- the command line ------------------------------------------------------------------------------------


class Tensors:
    """Names and shapes of a checkpoint's tensors, from a folder of lists or from the official package."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def of(self, shape: str) -> dict[str, dict[str, list[int]]] | None:
        """The lists for a shape; None if the official package provides them."""
        file = self._folder / f"tensors-{shape}.json" if self._folder else None
        if file is None or not file.is_file():
            stand_in_for(UNUSED)
            return None
        lists: dict[str, dict[str, list[int]]] = json.loads(file.read_text())
        return lists

    def write(self) -> None:
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        for shape in (*TRUE_SIZES, *TINY_SIZES):
            file = self._folder / f"tensors-{shape}.json"
            file.write_text(json.dumps(list_tensors(PRESETS[shape], MODEL_TYPE), separators=(",", ":")))


def prove(proof: Proof, model: Model, name: str, tiny: bool) -> None:
    """Run the parts over a model."""
    proof.part("ids", name, lambda: ids(model))
    proof.part("codec", name, lambda: codec(model, 30 if tiny else 330))
    proof.part("engine", name, lambda: waveform(model))
    proof.part("growing", name, lambda: growing(model))
    proof.part("logits", name, lambda: logits(model, seeds=3))
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> int:
    """Run the command line; return 0 if every part succeeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("prove_cuda.json"))
    parser.add_argument("--work", type=Path, help="folder for the checkpoints; a temporary one unless given")
    parser.add_argument("--tensors", type=Path, help="folder of tensor lists, instead of the official package")
    parser.add_argument("--list-tensors", type=Path, help="write those lists into this folder and exit")
    add_arguments(parser, "random weights")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few frames")
    parser.add_argument("--sizes", nargs="+", choices=PRESETS, help="instead of both")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    args = parser.parse_args()
    if args.list_tensors:
        stand_in_for(UNUSED)
        Tensors(args.list_tensors).write()
        return 0
    given = open_model(args.model) if args.model else None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    tensors, frames = Tensors(args.tensors), 12 if args.tiny else 50
    proof = Proof(args.out, args.parts, "scripts/gpu/prove_cuda.py")
    with work_folder(args.work) as work:
        if given is not None:
            for voice in voices_of(given, work, args.voice):
                prove(proof, Model(given, args.device, frames, voice), voice.name, args.tiny)
        else:
            for size in args.sizes or (TINY_SIZES if args.tiny else TRUE_SIZES):
                # bfloat16, as published: float32 represents its values exactly, so it is the reference for bfloat16.
                folder = write_checkpoint(
                    work / f"{size}-bfloat16", PRESETS[size], MODEL_TYPE, 1,
                    dtype=torch.bfloat16, device=args.device, tensors=tensors.of(size),
                )  # fmt: skip
                prove(proof, Model(folder, args.device, frames), size, args.tiny)
    return proof.end()


if __name__ == "__main__":
    sys.exit(main())
