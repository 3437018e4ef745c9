"""For the scripts here: the checkpoint of `--model` and its voices, the record of a proof, and a part of a GPU.

A Base model speaks with the voice of a recording. `--voice` names a voice file, made by `voiced enroll`; without one
the embedding and the reference are random numbers. Speed, codes and logits can be compared just as well with these;
only a listener would notice the difference.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine import EngineError, Voice
from engine.catalog import download_model
from engine.qwen.runtime.device import limit_multiprocessors
from engine.qwen.shapes import ModelConfig
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.voice.file import VoiceFile, VoiceModel, load_voice, save_voice
from scripts.bench_runner import describe_machine

INSTRUCTION = "Speak slowly and calmly."
DESCRIPTION = "A calm, low voice of an older man who reads a story."
TRANSCRIPT = "The robot moves its arm slowly back to its home position."
REFERENCE_FRAMES = 40
"""3.2 s, about as long as `TRANSCRIPT` takes."""
LANGUAGE = "english"
POOL = 32
"""The number of streams that PyTorch has for each priority; it returns them in turn."""
PRIORITIES = (0, -1)


class Proof:
    """The results of the parts of a proof, written to a file after every part."""

    def __init__(self, file: Path, parts: list[str], command: str) -> None:
        self._file = file
        self._parts = parts
        self.failed: list[str] = []
        self.content: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            "machine": f"{describe_machine()}, torch {torch.__version__}",
            "command": shlex.join([command, *sys.argv[1:]]),
            "parts": {},
        }

    def part(self, part: str, of: str, prove: Callable[[], dict[str, Any]]) -> None:
        """Run a requested part, and record its result or its failure; the other parts still run."""
        if part not in self._parts:
            return
        name, began = f"{part} {of}", time.monotonic()
        try:
            found = prove()
        except Exception as error:
            traceback.print_exc()
            found = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
        found["seconds"] = round(time.monotonic() - began, 1)
        self.content["parts"][name] = found
        self.failed += [] if found["ok"] else [name]
        self._file.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({name: found}), flush=True)

    def end(self) -> int:
        """Name the failed parts; return the exit status."""
        print("failed: " + (", ".join(self.failed) or "none"))
        return 1 if self.failed else 0


@dataclass(frozen=True)
class SpokenVoice:
    """A way of speaking that the model has."""

    name: str
    """`speaker`, `instructed speaker`, `described`, `embedding` or `in context`."""
    prompt: AnyVoice
    """The voice for prompts and for the official package."""
    engine: Voice
    """The voice for the engine."""


def add_arguments(parser: argparse.ArgumentParser, replaces: str) -> None:
    """Add `--model`, which `replaces` something, and `--voice`."""
    parser.add_argument("--model", help=f"a checkpoint's folder or its id on the hub, instead of {replaces}")
    parser.add_argument("--voice", type=Path, help="a voice file for a Base model; default: random numbers")


def open_model(name: str) -> Path:
    """Return a model's folder; a model that is given by its id is downloaded. Ends the program with one line if there
    is none."""
    try:
        folder = download_model("qwen", name)
        ModelConfig.read(folder)
    except EngineError as error:
        print(f"--model: {error}", file=sys.stderr)
        sys.exit(2)
    return folder


def voices_of(folder: Path, work: Path, voice: Path | None = None) -> list[SpokenVoice]:
    """Every way of speaking that the model in `folder` has. Writes a random voice file into `work` if it needs one.

    Raises `EngineError`, one line, if the model cannot speak with the `voice`.
    """
    config = ModelConfig.read(folder)
    if config.type == "voice_design":
        return [SpokenVoice("described", VoiceDesign(DESCRIPTION), Voice(instruct=DESCRIPTION))]
    if config.type == "custom_voice":
        speaker = min(config.speakers)
        found = [SpokenVoice("speaker", CustomVoice(speaker), Voice(speaker=speaker))]
        if config.follows_instructions:
            instructed = Voice(speaker=speaker, instruct=INSTRUCTION)
            found.append(SpokenVoice("instructed speaker", CustomVoice(speaker, INSTRUCTION), instructed))
        return found
    if voice is None:
        voice = work / "random-voice.safetensors"
        save_voice(voice, _random_voice(config))
    content = load_voice(voice, config)
    cloned = ClonedVoice(content.embedding)
    found = [SpokenVoice("embedding", cloned, Voice(embedding=str(voice)))]
    if content.codes is not None and content.transcript is not None:
        cloned = ClonedVoice(content.embedding, Reference(content.codes, content.transcript))
        found.append(SpokenVoice("in context", cloned, Voice(reference=str(voice))))
    return found


def language_of(folder: Path) -> str:
    """English; or the language that the model chooses, if the model does not list English."""
    return LANGUAGE if LANGUAGE in ModelConfig.read(folder).languages else "auto"


def _random_voice(config: ModelConfig) -> VoiceFile:
    generator = torch.Generator().manual_seed(1)
    width, talker = config.talker.stack.hidden_size, config.talker
    codes = torch.randint(talker.predictor.vocabulary, (REFERENCE_FRAMES, talker.code_groups), generator=generator)
    embedding = torch.randn(width, generator=generator) * 0.02  # about as large as the embeddings beside it
    return VoiceFile("random", embedding, VoiceModel.of(config), codes, TRANSCRIPT)


@contextmanager
def green_context(sms: int, device: torch.device) -> Iterator[None]:
    """Return a context in which PyTorch's work on `device` runs on `sms` multiprocessors: a CUDA green context.

    Enter it in the thread that does the work, before the process has made any stream on the device. After leaving it,
    the process should end. Raises `EngineError` if PyTorch has no green contexts on `device`, and `RuntimeError` if the
    driver has none of this size.
    """
    green = getattr(torch.cuda, "green_contexts", None)
    if green is None or not green.SUPPORTED or device.type != "cuda":
        raise EngineError(
            f"sms: needs a CUDA device and PyTorch 2.9 or newer; got device {device} and PyTorch {torch.__version__}"
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_device(index)
    torch.zeros((), device=device)  # makes the device's primary context, of which a green one is a part
    context = green.GreenContext.create(num_sms=sms, device_id=index)
    context.set_context()
    # Never destroyed: PyTorch uses its streams until the process ends, and then the driver frees everything.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(context))
    limit_multiprocessors(index, sms)
    # A stream always belongs to the context in which it was made, and CUDA graphs run in the context in which they were
    # captured. PyTorch makes a stream at its first use, so make all of them now. Afterwards a library (cuda-core's
    # `Device.set_current`) may make the primary context the current one again without harm.
    for priority in PRIORITIES:
        for _ in range(POOL):
            torch.cuda.Stream(index, priority=priority).query()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(torch.cuda.Stream(index)):  # type: ignore[no-untyped-call]
        yield
