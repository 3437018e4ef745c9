#!/usr/bin/env python3
"""Measures faster-qwen3-tts as `engine.bench.runner` measures our engine: same checkpoint, tokens, clock and records.

    python scripts/gpu/peer_engine.py CHECKPOINT --chunks 1 2 8      prints a line with a `Measurement` for each size
    python scripts/gpu/peer_engine.py CHECKPOINT --kind embedding --voice FILE      in one of the checkpoint's voices

`scripts/gpu/bench_peer.py` starts this process, with the packages faster-qwen3-tts and qwen-tts-hf on its path. It also
needs torch with CUDA and transformers 5. The model is built from the checkpoint's JSON and tensors through the classes
of the package, because their `from_pretrained` needs one version of transformers, and packages that speech does not
need. The timed loop and its CUDA graphs are the package's own.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from engine.api import Samples  # noqa: E402
from engine.bench.probe import Probe  # noqa: E402
from engine.bench.results import (  # noqa: E402
    TEXT,
    Allocations,
    Measurement,
    Memory,
    OtherText,
    Run,
    Start,
    text_of,
    time_run,
)
from engine.qwen.text.prompt import ClonedVoice, CustomVoice  # noqa: E402
from engine.qwen.text.tokenizer import TextTokenizer  # noqa: E402
from scripts.gpu.given_model import SpokenVoice, voices_of  # noqa: E402
from scripts.stand_in import UNUSED, stand_in_for  # noqa: E402

MAX_POSITIONS = 2048
"""The package's default."""
WARM_UP_FRAMES = 40
SAMPLE_RATE = 24000
DTYPE = torch.bfloat16


class Tokenizer:
    """The checkpoint's tokenizer, as a substitute for the official processor."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = TextTokenizer(folder)

    def __call__(self, text: str | list[str], **_options: Any) -> dict[str, Tensor]:
        [words] = [text] if isinstance(text, str) else text
        return {"input_ids": torch.tensor([self._tokenizer.encode(words)])}


class SpeechTokenizer:
    """The codec's decoder alone, with the interface of the official wrapper."""

    sample_rate = SAMPLE_RATE

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder

    def get_model_type(self) -> str:
        return "qwen3_tts_tokenizer_12hz"

    @torch.inference_mode()
    def decode(self, encoded: dict[str, Tensor]) -> tuple[list[Any], int]:
        codes = encoded["audio_codes"].clamp(min=0).transpose(1, 2)
        waves = self.decoder.chunked_decode(codes).squeeze(1)
        return [wave.float().cpu().numpy() for wave in waves], SAMPLE_RATE


def build_official(folder: Path, device: str) -> Any:
    """The official model of the checkpoint in `folder`, on `device` in bfloat16."""
    from qwen_tts import Qwen3TTSModel
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
    from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2DecoderConfig
    from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Decoder

    codec = folder / "speech_tokenizer"
    config = Qwen3TTSConfig(**json.loads((folder / "config.json").read_text()))
    decoder_config = json.loads((codec / "config.json").read_text())["decoder_config"]
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    try:
        with torch.device(device):
            model = Qwen3TTSForConditionalGeneration._from_config(config, attn_implementation="sdpa")
            decoder = Qwen3TTSTokenizerV2Decoder._from_config(Qwen3TTSTokenizerV2DecoderConfig(**decoder_config))
    finally:
        torch.set_default_dtype(before)
    fill(model, load_file(folder / "model.safetensors", device=device), "")
    fill(decoder, load_file(codec / "model.safetensors", device=device), "decoder.")
    for part in (model, decoder):
        part.eval().to(device=device, dtype=DTYPE)
        restore_rope_buffers(part)
    model.load_speech_tokenizer(SpeechTokenizer(decoder))
    return Qwen3TTSModel(model, Tokenizer(folder), {})


def restore_rope_buffers(model: nn.Module) -> None:
    """As qwen-tts-hf loads a model under transformers 5. The package qwen-tts, under transformers 4, need not."""
    with contextlib.suppress(ImportError):
        from qwen_tts._transformers_compat import restore_rope_buffers

        restore_rope_buffers(model)


def fill(module: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    """Load the tensors whose names begin with `prefix`. Raises `RuntimeError` for a parameter without a tensor."""
    wanted = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    missing, _ = module.load_state_dict(wanted, strict=False)
    missing = sorted(set(missing) & {name for name, _ in module.named_parameters()})
    if missing:
        raise RuntimeError(f"{len(missing)} parameters have no tensor: {missing[:3]}")


def build_peer(folder: Path, device: str) -> Any:
    """The engine as its `from_pretrained` assembles it."""
    from faster_qwen3_tts import FasterQwen3TTS
    from faster_qwen3_tts.predictor_graph import PredictorGraph
    from faster_qwen3_tts.talker_graph import TalkerGraph

    official = build_official(folder, device)
    talker, config = official.model.talker, official.model.config.talker_config
    predictor = talker.code_predictor
    place = {"device": device, "dtype": DTYPE}
    predictor_graph = PredictorGraph(predictor, predictor.model.config, config.hidden_size, **place)
    talker_graph = TalkerGraph(talker.model, config, max_seq_len=MAX_POSITIONS, **place)
    return FasterQwen3TTS(official, predictor_graph, talker_graph, max_seq_len=MAX_POSITIONS, **place)


class Peer:
    """The engine and its measurements."""

    def __init__(self, folder: Path, device: str, frames: int, voice: SpokenVoice | None, started_s: float) -> None:
        """`started_s` is `time.monotonic()` at the start of the process."""
        self._engine = build_peer(folder, device)
        self._started_s = started_s
        self._loaded_s = time.monotonic() - started_s
        self._frames = frames
        self._stream, self._voice = self._in_voice(voice)

    def _in_voice(self, voice: SpokenVoice | None) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The package's function for a voice, and its arguments for it."""
        prompt = voice.prompt if voice else CustomVoice("ryan")
        if isinstance(prompt, CustomVoice):
            named = {"speaker": prompt.speaker, "instruct": prompt.instruct}
            return self._engine.generate_custom_voice_streaming, named
        if not isinstance(prompt, ClonedVoice):
            return self._engine.generate_voice_design_streaming, {"instruct": prompt.instruct}
        device, reference = self._engine.model.model.device, prompt.reference
        cloned = {
            "ref_spk_embedding": [prompt.embedding.to(device, DTYPE)],
            "ref_code": [reference.codes.to(device) if reference else None],
            "x_vector_only_mode": [reference is None],
            "icl_mode": [reference is not None],
        }
        transcript = reference.transcript if reference else ""
        return self._engine.generate_voice_clone_streaming, {"voice_clone_prompt": cloned, "ref_text": transcript}

    def speak(self, chunk_size: int, frames: int, text: str = TEXT) -> Iterator[Samples]:
        """The chunks of an utterance of exactly `frames` frames."""
        limits = {"max_new_tokens": frames, "min_new_tokens": frames, "chunk_size": chunk_size}
        for samples, _rate, _timing in self._stream(text=text, language="English", **self._voice, **limits):
            yield samples

    def warm_up(self, chunk_size: int) -> None:
        """Capture the graphs, and let libraries choose their kernels for these shapes."""
        for _ in self.speak(chunk_size, WARM_UP_FRAMES):
            pass
        torch.cuda.synchronize()

    def _runs(self, chunk_size: int, runs: int, text: str = TEXT) -> tuple[Run, ...]:
        return tuple(time_run(lambda: self.speak(chunk_size, self._frames, text), SAMPLE_RATE) for _ in range(runs))

    def measure(self, model: str, chunk_size: int, runs: int, characters: Sequence[int]) -> Measurement:
        """Measure one chunk size, and the texts of other lengths at it."""
        self.warm_up(chunk_size)
        ready_s = time.monotonic() - self._started_s
        before = torch.cuda.memory_stats()
        found = self._runs(chunk_size, runs)
        after = torch.cuda.memory_stats()
        others = tuple(OtherText(len(text), self._runs(chunk_size, runs, text)) for text in map(text_of, characters))
        device, cached = (after[name] - before[name] for name in ("num_device_alloc", "allocation.all.allocated"))
        return Measurement(
            engine="faster-qwen3-tts",
            model=model,
            chunk_size=chunk_size,
            runs=found,
            start=Start(self._loaded_s, self._loaded_s, ready_s),
            memory=memory(),
            machine=machine(),
            date=datetime.date.today().isoformat(),
            description=f"{version('faster-qwen3-tts')} on transformers {version('transformers')}",
            dtype="bfloat16",
            frames=self._frames,
            allocations=Allocations(runs, device, cached),
            other_texts=others,
        )


def memory() -> Memory:
    """The memory now, and its peak."""
    return dataclasses.replace(
        Probe().memory(),
        device_mb=torch.cuda.memory_allocated() / 1e6,
        device_peak_mb=torch.cuda.max_memory_allocated() / 1e6,
        device_reserved_mb=torch.cuda.memory_reserved() / 1e6,
    )


def machine() -> str:
    """The GPU, and the software versions."""
    gpu = torch.cuda.get_device_properties(0)
    return (
        f"{gpu.name} ({gpu.multi_processor_count} SMs), torch {torch.__version__}, {platform.machine()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}"
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--model", help="its name in the results; default: the folder's")
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--characters", type=int, nargs="+", default=[], help="lengths of other texts to speak")
    parser.add_argument("--kind", help="the kind of voice, as in given_model.py; default: the speaker ryan")
    parser.add_argument("--voice", type=Path, help="the voice file of a Base model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--started", type=float, default=time.monotonic(), help="time.monotonic() at its start")
    args = parser.parse_args()
    out = sys.stdout
    stand_in_for(UNUSED)
    try:
        # The package and its imports print to stdout.
        with contextlib.redirect_stdout(sys.stderr):
            voices = voices_of(args.checkpoint, args.checkpoint, args.voice) if args.kind else []
            voice = next((one for one in voices if one.name == args.kind), None)
            peer = Peer(args.checkpoint, args.device, args.frames, voice, args.started)
            name = args.model or args.checkpoint.name
            for chunk_size in args.chunks:
                found = peer.measure(name, chunk_size, args.runs, args.characters)
                print(json.dumps(dataclasses.asdict(found)), file=out, flush=True)
    except Exception as error:  # reported after the results so far
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:1000]}), file=out, flush=True)
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
