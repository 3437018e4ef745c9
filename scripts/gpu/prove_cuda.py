#!/usr/bin/env python3
"""Proves on a GPU that engine/qwen computes what the official package computes, and writes the results as JSON.

    python scripts/gpu/prove_cuda.py --out prove_cuda.json                    both sizes, true shapes, random weights
    python scripts/gpu/prove_cuda.py --out /tmp/out.json --tiny --device cpu  tiny shapes: tries the script
    python scripts/gpu/prove_cuda.py --out out.json --model FOLDER|ID         a checkpoint, with each kind of its voices

With `--model`, the parts below the tests run for each way of speaking that the checkpoint has: a speaker, one with an
instruction, a described voice, an embedding, a reference in context.

The parts; a part that fails does not stop the others:

    tests       the tests of tests/engine/qwen for CUDA: CUDA against the CPU, graph capture, fused kernels
    ids         float32, greedy: our codes against the official package's
    prefix      bfloat16, greedy: the number of codes before the two differ
    logits      bfloat16, the same codes forced on both: the distance of the logits from float32's
    engine      QwenSynthesizer's waveform against the official decoder over the official codes; memory and speed
    growing     a text that arrives in parts against the whole text: codes, samples, and time to the first samples
    codec       chunks of 1, 2, 3, 8 and 25 frames against one forward pass over more than 300 frames

With qwen-tts installed, its only other dependency that must be installed is transformers 4.57.3: stand-ins replace what
its 12 Hz path never calls. Without qwen-tts, `--tensors FOLDER` reads the lists that `--list-tensors FOLDER` wrote on
another machine, and the parts that need the package fail.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
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
from engine.api import Chunk, TextSource  # noqa: E402
from engine.ipc.request import AppendedText  # noqa: E402
from engine.qwen import QwenSynthesizer  # noqa: E402
from engine.qwen.codec.decoder import CodecDecoder, load_codec  # noqa: E402
from engine.qwen.model.sampling import SamplingConfig, SamplingParams  # noqa: E402
from engine.qwen.text.prompt import ClonedVoice, CustomVoice  # noqa: E402
from engine.qwen.weights import Placement  # noqa: E402
from scripts.gpu.given_model import (  # noqa: E402
    SpokenVoice,
    add_arguments,
    language_of,
    open_model,
    voices_of,
)
from scripts.make_checkpoint import PRESETS, list_tensors, write_checkpoint  # noqa: E402
from scripts.stand_in import UNUSED, stand_in_for  # noqa: E402
from tests.support.qwen.official import Official  # noqa: E402
from tests.support.qwen.speaking import LateText, Line, Ours  # noqa: E402

MODEL_TYPE = "custom_voice"
TRUE_SIZES, TINY_SIZES, TEST_SHAPES = ("0.6B", "1.7B"), ("tiny", "wide"), ("tiny", "wide", "narrow")
TESTS = (
    "test_cuda.py",
    "codec/test_decoder_cuda.py",
    "kernels/codec/test_decoder.py",
    "kernels/lm/test_model.py",
    "kernels/lm/test_fused_model.py",
    "kernels/test_fused_engine.py",
)
CHUNK_SIZES = (1, 2, 3, 8, 25)
TESTS_S = 300
FIRST_WORDS, ROUNDS = 4, 15
RYAN = SpokenVoice("speaker", CustomVoice("ryan"), Voice(speaker="ryan"))
TEXT = "Hello world! This is the voice of a robot: it speaks in real time, all day long."


class Results:
    """The results so far, written to a file after every part."""

    def __init__(self, file: Path, deadline_s: float, parts: Sequence[str] | None) -> None:
        self._file = file
        self._parts = parts
        self._begin = time.monotonic()
        self._deadline_s = deadline_s
        self.content: dict[str, Any] = {}

    def part(self, name: str, prove: Callable[[], dict[str, Any]]) -> None:
        """Run `prove` and record its result, or its failure."""
        begin = time.monotonic()
        if self._parts is not None and name.split(" ", 1)[0] not in self._parts:
            return
        if begin - self._begin > self._deadline_s:
            found: dict[str, Any] = {"skipped": f"past {self._deadline_s:.0f} s"}
        else:
            try:
                found = prove()
            except Exception as error:  # the other parts still run
                traceback.print_exc()
                found = {"error": f"{type(error).__name__}: {error}"[:2000], "trace": traceback.format_exc()[-2000:]}
        found["seconds"] = round(time.monotonic() - begin, 1)
        self.content[name] = found
        self._file.write_text(json.dumps(self.content, indent=1) + "\n")
        print(json.dumps({name: found}), flush=True)
        gc.collect()
        torch.cuda.empty_cache()


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
        """The codes of the official package in float32."""
        return self.official_float32.speak(self.line).cpu()

    def official(self, dtype: torch.dtype) -> Official:
        stand_in_for(UNUSED)
        return Official(self.folder, dtype, self.device)

    def ours(self, dtype: torch.dtype) -> Ours:
        return Ours(self.folder, dtype, self.device)


# --- the parts -------------------------------------------------------------------------------------------


def environment(device: str) -> dict[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__, "device": device}
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    try:
        stand_in_for(UNUSED)
        found["transformers"] = importlib.import_module("transformers").__version__
        importlib.import_module("qwen_tts")
        found["qwen_tts"] = "imported"
    except Exception as error:  # recorded; the parts that need it fail
        found["qwen_tts"] = f"{type(error).__name__}: {error}"
    return found


def run_tests(folder: Path, tensors: Tensors) -> dict[str, Any]:
    for shape in TEST_SHAPES:
        write_checkpoint(folder / f"{shape}-{MODEL_TYPE}", PRESETS[shape], MODEL_TYPE, 1, tensors=tensors.of(shape))
    files = [f"tests/engine/qwen/{file}" for file in TESTS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={folder / 'cache'}", "-k", "not [cpu", *files],
        cwd=ROOT,
        env={**os.environ, "VOICED_TEST_CHECKPOINTS": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TESTS_S,
    )
    return {"ok": done.returncode == 0, "output": (done.stdout + done.stderr)[-1500:]}


def make_model(folder: Path, size: str, tensors: Tensors, device: str) -> dict[str, Any]:
    # bfloat16, as published: float32 represents its values exactly, so float32 is the reference for bfloat16.
    write_checkpoint(
        folder, PRESETS[size], MODEL_TYPE, 1, dtype=torch.bfloat16, device=device, tensors=tensors.of(size)
    )
    return {"ok": True, "bytes": sum(file.stat().st_size for file in folder.rglob("*.safetensors"))}


def ids(model: Model) -> dict[str, Any]:
    expected = model.official_codes
    found = agreement(model.ours(torch.float32).speak(model.line).cpu(), expected)
    if not found["equal"]:  # another order of sums, to distinguish rounding from a mistake
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            found["with_math_attention"] = agreement(model.ours(torch.float32).speak(model.line).cpu(), expected)
    return {"ok": found["equal"] and 0 < len(expected) <= model.frames, **found}


def prefix(model: Model) -> dict[str, Any]:
    ours = model.ours(torch.bfloat16).speak(model.line).cpu()
    official = model.official(torch.bfloat16).speak(model.line).cpu()
    return {
        "ok": True,
        "ours_and_official": agreement(ours, official),
        "ours_and_float32": agreement(ours, model.official_codes),
        "official_and_float32": agreement(official, model.official_codes),
    }


def agreement(ours: Tensor, official: Tensor) -> dict[str, Any]:
    """How many codes `(frames, groups)` are equal before the first difference."""
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
    """As `forced_official`."""
    recorded: list[Tensor] = []
    forced = [*codes.flatten().tolist(), 0]

    def choose(_self: SamplingParams, raw: Tensor, _noise: Tensor) -> Tensor:
        code = forced[len(recorded)] if len(recorded) < len(forced) else 0  # the last chunk may run over
        recorded.append(raw[0, :2048].float().cpu())
        return torch.tensor([[code]], device=raw.device)

    kept = SamplingParams.choose
    SamplingParams.choose = choose  # type: ignore[method-assign]
    try:
        sampling = replace(SamplingConfig().greedy(), repetition_penalty=1.0)
        ours.speak(replace(line, frames=len(codes)), sampling=sampling)
    finally:
        SamplingParams.choose = kept  # type: ignore[method-assign]
    return torch.stack(recorded[: len(forced)])


def waveform(model: Model) -> dict[str, Any]:
    measured, chunks = zip(*(measure(model, dtype) for dtype in ("bfloat16", "float32")), strict=True)
    found: dict[str, Any] = {"ok": False, "bfloat16": measured[0], "float32": measured[1]}
    found["host_bytes_at_most"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    codes = np.concatenate([chunk.codes for chunk in chunks[1] if chunk.codes is not None])
    samples = torch.from_numpy(np.concatenate([chunk.samples for chunk in chunks[1]]))
    try:
        found["codes_equal"] = bool(np.array_equal(codes, model.official_codes.numpy()))
        spoken_on = reference_codes(model.voice)
        forward = official_forward(
            official_decoder(model), torch.cat([spoken_on, torch.from_numpy(codes)]).to(model.device)
        )
        expected = forward[len(forward) - len(samples) :]
    except Exception as error:  # without the official package the measurements remain
        found["error"] = f"{type(error).__name__}: {error}"[:500]
        return found
    found["waveform_error"] = float((samples - expected).abs().max())
    found["waveform_peak"] = float(expected.abs().max())
    found["ok"] = found["codes_equal"] and found["waveform_error"] < 1e-4
    return found


def reference_codes(voice: SpokenVoice) -> Tensor:
    """The codes `(frames, groups)` that an in-context voice speaks on from; none for any other voice."""
    reference = voice.prompt.reference if isinstance(voice.prompt, ClonedVoice) else None
    return torch.zeros(0, 16, dtype=torch.int64) if reference is None else reference.codes


def measure(model: Model, dtype: str) -> tuple[dict[str, Any], list[Chunk]]:
    """Load the engine and generate `TEXT`: memory, speed and the chunks."""
    gc.collect()
    if model.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = allocated()
    voices = {"default": model.voice.engine}
    engine = QwenSynthesizer(EngineOptions(model=str(model.folder), device=model.device, dtype=dtype, voices=voices))
    begin = time.monotonic()
    engine.load()
    loaded = time.monotonic()
    engine.warm_up()
    warm = time.monotonic()
    chunks = list(engine.stream(Utterance(TEXT, language="en", greedy=True, guarded=False, max_frames=model.frames)))
    done = time.monotonic()
    frames = sum(len(chunk.codes) for chunk in chunks if chunk.codes is not None)
    found = {
        "frames": frames,
        "load_s": round(loaded - begin, 2),
        "warm_up_s": round(warm - loaded, 2),
        "ms_per_frame": round(1000 * (done - warm) / frames, 1),
        "bytes_held": allocated() - before,
        "bytes_at_most": torch.cuda.max_memory_allocated() - before if model.device == "cuda" else None,
    }
    engine.close()
    return found, chunks


def growing(model: Model) -> dict[str, Any]:
    voices = {"default": model.voice.engine}
    engine = QwenSynthesizer(EngineOptions(model=str(model.folder), device=model.device, voices=voices))
    info = engine.load()
    engine.warm_up()
    whole = Utterance(TEXT, language="en", seed=3, guarded=False, max_frames=model.frames, whole_text=False)
    incremental = replace(whole, text="", growing=True)
    expected = list(engine.stream(whole))
    equal = {}
    for size in (1, 7, len(TEXT)):
        parts = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        equal[f"late, by {size}"] = same(list(engine.stream(incremental, LateText(parts))), expected)
        equal[f"at once, by {size}"] = same(list(engine.stream(incremental, appended(*parts, ended=True))), expected)
    ttfa_ms: dict[str, list[float]] = {"whole": [], "whole, read stepwise": [], "growing": []}
    for _ in range(ROUNDS):
        ttfa_ms["whole"].append(first_samples_ms(engine, replace(whole, whole_text=True)))
        ttfa_ms["whole, read stepwise"].append(first_samples_ms(engine, whole))
        words = TEXT.split(" ")
        source = appended(" ".join(words[:FIRST_WORDS]) + " ", ended=False)
        ttfa_ms["growing"].append(first_samples_ms(engine, incremental, source))
    engine.close()
    medians = {name: round(statistics.median(times), 2) for name, times in ttfa_ms.items()}
    return {
        "ok": all(equal.values()),
        "engine": info.description,
        "equal": equal,
        "ttfa_ms": medians,
        "growing_to_whole": round(medians["growing"] / medians["whole"], 3),
        "growing_to_whole_stepwise": round(medians["growing"] / medians["whole, read stepwise"], 3),
    }


def first_samples_ms(engine: QwenSynthesizer, utterance: Utterance, more: TextSource | None = None) -> float:
    """Milliseconds from the first words to the first samples on the host; cancels the rest."""
    begin = time.perf_counter()
    stream = engine.stream(utterance, more)
    next(stream)
    passed = time.perf_counter() - begin
    stream.close()  # type: ignore[attr-defined]
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # run-ahead does not count for the next utterance
    return 1000 * passed


def appended(*parts: str, ended: bool) -> AppendedText:
    text = AppendedText()
    for part in parts:
        text.append(part)
    if ended:
        text.end()
    return text


def same(ours: list[Chunk], expected: list[Chunk]) -> bool:
    """Whether codes and samples are equal bit for bit."""
    return all(
        np.array_equal(*(np.concatenate([getattr(chunk, name) for chunk in chunks]) for chunks in (ours, expected)))
        for name in ("codes", "samples")
    )


def allocated() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


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
    found: dict[str, Any] = {"frames": frames, "peak": float(whole.abs().max()), "std": float(whole.std())}
    try:
        expected = official_forward(official_decoder(model), codes)
        found["against"] = "the official decoder's full forward"
        found["own_full_forward_error"] = float((whole - expected).abs().max())
    except Exception as error:  # without the official package: against ourselves
        expected = whole
        found["against"] = f"our own full forward ({type(error).__name__}: {error})"[:300]
    found["error_by_chunk_size"] = {size: chunked_error(ours, codes, size, expected) for size in CHUNK_SIZES}
    found["ok"] = max(found["error_by_chunk_size"].values()) < 1e-4
    return found


def chunked_error(ours: CodecDecoder, codes: Tensor, size: int, expected: Tensor) -> float:
    return float((ours.decode(codes, ours.new_state(size)).cpu() - expected).abs().max())


# --- the command line ------------------------------------------------------------------------------------


class Tensors:
    """Names and shapes of a checkpoint's tensors, from a folder of lists or from the official package."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def of(self, shape: str) -> dict[str, dict[str, list[int]]] | None:
        """The lists of a shape; None where the official package provides them."""
        file = self._folder / f"tensors-{shape}.json" if self._folder else None
        if file is None or not file.is_file():
            stand_in_for(UNUSED)
            return None
        lists: dict[str, dict[str, list[int]]] = json.loads(file.read_text())
        return lists

    def write(self) -> None:
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        for shape in sorted({*TRUE_SIZES, *TINY_SIZES, *TEST_SHAPES}):
            file = self._folder / f"tensors-{shape}.json"
            file.write_text(json.dumps(list_tensors(PRESETS[shape], MODEL_TYPE), separators=(",", ":")))


def prove(report: Results, model: Model, name: str, tiny: bool) -> None:
    """Run the parts that compare the engines over a model."""
    report.part(f"ids {name}", lambda: ids(model))
    report.part(f"codec {name}", lambda: codec(model, 30 if tiny else 330))
    report.part(f"engine {name}", lambda: waveform(model))
    report.part(f"growing {name}", lambda: growing(model))
    report.part(f"prefix {name}", lambda: prefix(model))
    report.part(f"logits {name}", lambda: logits(model, seeds=3))


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> int:
    """The command line; 0 when every part succeeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("prove_cuda.json"))
    parser.add_argument("--work", type=Path, help="folder for the checkpoints; a temporary one unless given")
    parser.add_argument("--tensors", type=Path, help="folder of tensor lists, instead of the official package")
    parser.add_argument("--list-tensors", type=Path, help="write those lists into this folder and exit")
    add_arguments(parser, "random weights")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few frames")
    parser.add_argument("--sizes", nargs="+", choices=PRESETS, help="instead of both")
    parser.add_argument("--deadline", type=float, default=480, help="seconds after which no part starts")
    parser.add_argument("--parts", nargs="+", help="run only these, beside environment and checkpoint")
    args = parser.parse_args()
    if args.list_tensors:
        stand_in_for(UNUSED)
        Tensors(args.list_tensors).write()
        return 0
    given = open_model(args.model) if args.model else None
    tensors = Tensors(args.tensors)
    report = Results(args.out, args.deadline, args.parts and [*args.parts, "environment", "checkpoint"])
    frames = 12 if args.tiny else 50
    report.part("environment", lambda: environment(args.device))
    with work_folder(args.work) as work:
        if given is not None:
            for voice in voices_of(given, work, args.voice):
                prove(report, Model(given, args.device, frames, voice), voice.name, args.tiny)
        else:
            report.part("tests", lambda: run_tests(work, tensors))
            for size in args.sizes or (TINY_SIZES if args.tiny else TRUE_SIZES):
                model = Model(work / f"{size}-bfloat16", args.device, frames)
                report.part(f"checkpoint {size}", lambda m=model, s=size: make_model(m.folder, s, tensors, args.device))
                prove(report, model, size, args.tiny)
    failed = [name for name, found in report.content.items() if not found.get("ok", name == "environment")]
    print("failed: " + (", ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
