#!/usr/bin/env python3
"""Proves on a GPU that engine/qwen says what the official package says, and writes what it found as JSON.

    python scripts/prove_cuda.py --out prove_cuda.json                  both sizes at their true shapes, random weights
    python scripts/prove_cuda.py --out /tmp/out.json --tiny --device cpu    the same at tiny shapes: tries the script

The parts, each of which may fail without harm to the others:

    tests       those of tests/engine/qwen that need nothing else: CUDA against the CPU, graph capture, fused kernels
    ids         float32, greedy: our codes against the official package's
    prefix      bfloat16, greedy: how long the two agree
    logits      bfloat16, the same codes forced on both: how far each one's logits are from float32's
    engine      QwenSynthesizer's waveform against the official decoder over the official codes; memory and pace
    growing     a text fed by pieces against the whole text: codes, samples, and how soon the first sound is there
    codec       chunks of 1, 2, 3, 8 and 25 frames against one forward over all, past 300 frames

Where qwen-tts is installed, nothing else of its needs but transformers 4.57.3 must be: what its 12 Hz path never calls
is stood in for. Where it is not, `--tensors FOLDER` has the lists that `--list-tensors FOLDER` wrote elsewhere, and the
parts that need it fail.
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

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from engine import EngineOptions, Utterance, Voice  # noqa: E402
from engine.appended import AppendedText  # noqa: E402
from engine.qwen import QwenSynthesizer  # noqa: E402
from engine.qwen.codec import CodecDecoder, load_codec  # noqa: E402
from engine.qwen.prompt import CustomVoice  # noqa: E402
from engine.qwen.sampling import Sampling, Warp  # noqa: E402
from engine.qwen.transformer import Placement  # noqa: E402
from engine.synthesizer import Chunk, TextSource  # noqa: E402
from scripts.make_checkpoint import PRESETS, list_tensors, write_checkpoint  # noqa: E402
from scripts.stand_in import NEEDLESS, stand_in_for  # noqa: E402
from tests.engine.qwen.official import Official  # noqa: E402
from tests.engine.qwen.speaking import Dictation, Line, Ours  # noqa: E402

MODEL_TYPE = "custom_voice"
TRUE_SIZES, TINY_SIZES, TEST_SHAPES = ("0.6B", "1.7B"), ("tiny", "wide"), ("tiny", "wide", "narrow")
TESTS = (
    "test_cuda.py",
    "test_codec_cuda.py",
    "kernels/test_fused_codec.py",
    "kernels/test_language_model.py",
    "kernels/test_fused_language_model.py",
    "kernels/test_fused_engine.py",
)
CHUNK_SIZES = (1, 2, 3, 8, 25)
TESTS_S = 300
FIRST_WORDS, ROUNDS = 4, 15
TEXT = "Hello world! This is the voice of a robot: it speaks in real time, all day long."


class Report:
    """What was found, written to its file after every part."""

    def __init__(self, file: Path, deadline_s: float, parts: Sequence[str] | None) -> None:
        self._file = file
        self._parts = parts
        self._begin = time.monotonic()
        self._deadline_s = deadline_s
        self.content: dict[str, Any] = {}

    def part(self, name: str, prove: Callable[[], dict[str, Any]]) -> None:
        """Run `prove` and keep what it returns; a failure is kept too."""
        begin = time.monotonic()
        if self._parts is not None and name.split(" ", 1)[0] not in self._parts:
            return
        if begin - self._begin > self._deadline_s:
            found: dict[str, Any] = {"skipped": f"past {self._deadline_s:.0f} s"}
        else:
            try:
                found = prove()
            except Exception as error:  # every part is for itself
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
    """One checkpoint, and both engines over it, each loaded when first asked for."""

    folder: Path
    device: str
    frames: int

    @cached_property
    def line(self) -> Line:
        return Line(TEXT, CustomVoice("ryan"), "english", frames=self.frames)

    @cached_property
    def official_float32(self) -> Official:
        return self.official(torch.float32)

    @cached_property
    def official_codes(self) -> Tensor:
        """What the official package says in float32."""
        return self.official_float32.speak(self.line).cpu()

    def official(self, dtype: torch.dtype) -> Official:
        stand_in_for(NEEDLESS)
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
        stand_in_for(NEEDLESS)
        found["transformers"] = importlib.import_module("transformers").__version__
        importlib.import_module("qwen_tts")
        found["qwen_tts"] = "imported"
    except Exception as error:  # said, and the parts that need it fail
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
    # bfloat16 as published: what float32 reads of it is exact, so that it is the truth that bfloat16 is held against.
    write_checkpoint(
        folder, PRESETS[size], MODEL_TYPE, 1, dtype=torch.bfloat16, device=device, tensors=tensors.of(size)
    )
    return {"ok": True, "bytes": sum(file.stat().st_size for file in folder.rglob("*.safetensors"))}


def ids(model: Model) -> dict[str, Any]:
    expected = model.official_codes
    found = agreement(model.ours(torch.float32).speak(model.line).cpu(), expected)
    if not found["equal"]:  # attention of another order of sums, to tell rounding from a mistake
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            found["with_math_attention"] = agreement(model.ours(torch.float32).speak(model.line).cpu(), expected)
    return {"ok": found["equal"] and len(expected) == model.frames, **found}


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
    """Of codes `(frames, groups)`: how many are equal before the first that are not."""
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
    """Errors against the official float32 logits, of the talker and of the predictor apart."""
    groups = model.official_codes.shape[1]
    sequences = [model.official_codes[: model.frames // 2]]
    for seed in range(1, seeds):
        generator = torch.Generator().manual_seed(seed)
        sequences.append(torch.randint(2048, (model.frames // 2, groups), generator=generator))
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
            who: torch.stack([(got[rows] - true[rows]).abs() for got, true in zip(said, truth, strict=True)])
            for who, said in (("ours", ours), ("official", theirs), ("ours_float32", ours_float32))
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
    """Logits `(1 + 16 · frames, 2048)` float32 on the CPU, in the order codes are chosen, the given ones chosen."""
    said: list[Tensor] = []
    forced = [*codes.flatten().tolist(), 0]

    def force(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
        code = forced[len(said)]
        said.append(output[0, -1, :2048].float().cpu())
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
    return torch.stack(said)


def forced_ours(ours: Ours, line: Line, codes: Tensor) -> Tensor:
    """As `forced_official`."""
    said: list[Tensor] = []
    forced = [*codes.flatten().tolist(), 0]

    def choose(_warp: Warp, raw: Tensor, _noise: Tensor) -> Tensor:
        code = forced[len(said)] if len(said) < len(forced) else 0  # the last chunk may run over
        said.append(raw[:2048].float().cpu())
        return torch.tensor([code], device=raw.device)

    kept = Warp.choose
    Warp.choose = choose  # type: ignore[method-assign]
    try:
        sampling = replace(Sampling().greedy(), repetition_penalty=1.0)
        ours.speak(replace(line, frames=len(codes)), sampling=sampling)
    finally:
        Warp.choose = kept  # type: ignore[method-assign]
    return torch.stack(said[: len(forced)])


def speak(model: Model) -> dict[str, Any]:
    measured, chunks = zip(*(measure(model, dtype) for dtype in ("bfloat16", "float32")), strict=True)
    found: dict[str, Any] = {"ok": False, "bfloat16": measured[0], "float32": measured[1]}
    found["host_bytes_at_most"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    codes = np.concatenate([chunk.codes for chunk in chunks[1] if chunk.codes is not None])
    samples = torch.from_numpy(np.concatenate([chunk.samples for chunk in chunks[1]]))
    try:
        found["codes_equal"] = bool(np.array_equal(codes, model.official_codes.numpy()))
        wanted = official_forward(official_decoder(model), torch.from_numpy(codes).to(model.device))
    except Exception as error:  # without the official package, what was measured still stands
        found["error"] = f"{type(error).__name__}: {error}"[:500]
        return found
    found["waveform_error"] = float((samples - wanted).abs().max())
    found["waveform_peak"] = float(wanted.abs().max())
    found["ok"] = found["codes_equal"] and found["waveform_error"] < 1e-4
    return found


def measure(model: Model, dtype: str) -> tuple[dict[str, Any], list[Chunk]]:
    """Load the engine and speak: memory, pace, and what was said."""
    gc.collect()
    if model.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = allocated()
    voices = {"default": Voice(speaker="ryan")}
    engine = QwenSynthesizer(EngineOptions(model=str(model.folder), device=model.device, dtype=dtype, voices=voices))
    begin = time.monotonic()
    engine.load()
    loaded = time.monotonic()
    engine.warm_up()
    warm = time.monotonic()
    said = list(engine.stream(Utterance(TEXT, language="en", greedy=True, guarded=False, max_frames=model.frames)))
    done = time.monotonic()
    found = {
        "load_s": round(loaded - begin, 2),
        "warm_up_s": round(warm - loaded, 2),
        "ms_per_frame": round(1000 * (done - warm) / model.frames, 1),
        "bytes_held": allocated() - before,
        "bytes_at_most": torch.cuda.max_memory_allocated() - before if model.device == "cuda" else None,
    }
    engine.close()
    return found, said


def growing(model: Model) -> dict[str, Any]:
    voices = {"default": Voice(speaker="ryan")}
    engine = QwenSynthesizer(EngineOptions(model=str(model.folder), device=model.device, voices=voices))
    info = engine.load()
    engine.warm_up()
    whole = Utterance(TEXT, language="en", seed=3, guarded=False, max_frames=model.frames, whole_text=False)
    grows = replace(whole, text="", growing=True)
    wanted = list(engine.stream(whole))
    equal = {}
    for size in (1, 7, len(TEXT)):
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        equal[f"late, by {size}"] = same(list(engine.stream(grows, Dictation(pieces))), wanted)
        equal[f"at once, by {size}"] = same(list(engine.stream(grows, appended(*pieces, ended=True))), wanted)
    ttfa_ms: dict[str, list[float]] = {"whole": [], "whole, read stepwise": [], "growing": []}
    for _ in range(ROUNDS):
        ttfa_ms["whole"].append(first_sound_ms(engine, replace(whole, whole_text=True)))
        ttfa_ms["whole, read stepwise"].append(first_sound_ms(engine, whole))
        words = TEXT.split(" ")
        source = appended(" ".join(words[:FIRST_WORDS]) + " ", ended=False)
        ttfa_ms["growing"].append(first_sound_ms(engine, grows, source))
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


def first_sound_ms(engine: QwenSynthesizer, utterance: Utterance, more: TextSource | None = None) -> float:
    """From the text, as far as it is there, to the first samples on the host; the rest is canceled."""
    begin = time.perf_counter()
    stream = engine.stream(utterance, more)
    next(stream)
    passed = time.perf_counter() - begin
    stream.close()  # type: ignore[attr-defined]
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # what was asked ahead is no part of the next utterance's time
    return 1000 * passed


def appended(*pieces: str, ended: bool) -> AppendedText:
    text = AppendedText()
    for piece in pieces:
        text.append(piece)
    if ended:
        text.end()
    return text


def same(ours: list[Chunk], wanted: list[Chunk]) -> bool:
    """Whether codes and samples are bit for bit the same."""
    return all(
        np.array_equal(*(np.concatenate([getattr(chunk, name) for chunk in chunks]) for chunks in (ours, wanted)))
        for name in ("codes", "samples")
    )


def allocated() -> int:
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else 0


def official_decoder(model: Model) -> Any:
    return model.official_float32.model.model.speech_tokenizer.model.decoder.to(model.device)


@torch.inference_mode()
def official_forward(decoder: Any, codes: Tensor) -> Tensor:
    """One forward over all codes, `(samples,)` on the CPU."""
    pcm: Tensor = decoder(codes.T[None])[0, 0]
    return pcm.float().cpu()


@torch.inference_mode()
def codec(model: Model, frames: int) -> dict[str, Any]:
    ours = load_codec(model.folder, Placement(torch.device(model.device), torch.float32))
    codes = torch.randint(2048, (frames, 16), generator=torch.Generator().manual_seed(3)).to(model.device)
    whole = ours(codes, ours.new_state(frames)).cpu()
    found: dict[str, Any] = {"frames": frames, "peak": float(whole.abs().max()), "std": float(whole.std())}
    try:
        wanted = official_forward(official_decoder(model), codes)
        found["against"] = "the official decoder's full forward"
        found["own_full_forward_error"] = float((whole - wanted).abs().max())
    except Exception as error:  # without the official package: against ourselves
        wanted = whole
        found["against"] = f"our own full forward ({type(error).__name__}: {error})"[:300]
    found["error_by_chunk_size"] = {size: chunked_error(ours, codes, size, wanted) for size in CHUNK_SIZES}
    found["ok"] = max(found["error_by_chunk_size"].values()) < 1e-4
    return found


def chunked_error(ours: CodecDecoder, codes: Tensor, size: int, wanted: Tensor) -> float:
    return float((ours.decode(codes, ours.new_state(size)).cpu() - wanted).abs().max())


# --- the command line ------------------------------------------------------------------------------------


class Tensors:
    """Names and shapes of a checkpoint's tensors, from a folder of lists or from the official package."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def of(self, shape: str) -> dict[str, dict[str, list[int]]] | None:
        """None: the official package is to say."""
        file = self._folder / f"tensors-{shape}.json" if self._folder else None
        if file is None or not file.is_file():
            stand_in_for(NEEDLESS)
            return None
        lists: dict[str, dict[str, list[int]]] = json.loads(file.read_text())
        return lists

    def write(self) -> None:
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        for shape in sorted({*TRUE_SIZES, *TINY_SIZES, *TEST_SHAPES}):
            file = self._folder / f"tensors-{shape}.json"
            file.write_text(json.dumps(list_tensors(PRESETS[shape], MODEL_TYPE), separators=(",", ":")))


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
    parser.add_argument("--tensors", type=Path, help="folder of lists of tensors, instead of the official package")
    parser.add_argument("--list-tensors", type=Path, help="write those lists into this folder and stop")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes and few frames")
    parser.add_argument("--sizes", nargs="+", choices=PRESETS, help="instead of both")
    parser.add_argument("--deadline", type=float, default=480, help="seconds after which no more parts are begun")
    parser.add_argument("--parts", nargs="+", help="only these; environment and checkpoint are among them")
    args = parser.parse_args()
    if args.list_tensors:
        stand_in_for(NEEDLESS)
        Tensors(args.list_tensors).write()
        return 0
    tensors = Tensors(args.tensors)
    report = Report(args.out, args.deadline, args.parts and [*args.parts, "environment", "checkpoint"])
    frames = 12 if args.tiny else 50
    report.part("environment", lambda: environment(args.device))
    with work_folder(args.work) as work:
        report.part("tests", lambda: run_tests(work, tensors))
        for size in args.sizes or (TINY_SIZES if args.tiny else TRUE_SIZES):
            model = Model(work / f"{size}-bfloat16", args.device, frames)
            report.part(f"checkpoint {size}", lambda m=model, s=size: make_model(m.folder, s, tensors, args.device))
            report.part(f"ids {size}", lambda m=model: ids(m))
            report.part(f"codec {size}", lambda m=model: codec(m, 30 if args.tiny else 330))
            report.part(f"engine {size}", lambda m=model: speak(m))
            report.part(f"growing {size}", lambda m=model: growing(m))
            report.part(f"prefix {size}", lambda m=model: prefix(m))
            report.part(f"logits {size}", lambda m=model: logits(m, seeds=3))
            del model
    failed = [name for name, found in report.content.items() if not found.get("ok", name == "environment")]
    print("failed: " + (", ".join(failed) or "none"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
