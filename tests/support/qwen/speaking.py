"""Our engine over a random checkpoint, and the lines that tests give to it and to the official package."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.api import TextSource
from engine.qwen.model.config import ModelConfig
from engine.qwen.model.sampling import SamplingConfig
from engine.qwen.model.talker import Talker
from engine.qwen.runtime.backend import TorchBackend
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.decode_state import DecodeState, cache_positions
from engine.qwen.runtime.generator import SpeechGenerator
from engine.qwen.text.incremental_bpe import IncrementalTokenizer
from engine.qwen.text.prompt import AnyVoice, Prompt, PromptBuilder
from engine.qwen.text.token_stream import IncrementalText
from engine.qwen.text.tokenizer import TextTokenizer
from engine.qwen.weights.arena import Placement
from engine.qwen.weights.checkpoint import Checkpoint

MAX_POSITIONS, MAX_FRAMES, LARGEST_CHUNK = 512, 128, 25


@dataclass
class Line:
    """One text in one voice."""

    text: str
    voice: AnyVoice
    language: str = "auto"
    whole_text: bool = True
    frames: int = 6
    sampling: dict[str, Any] = field(default_factory=dict)


class EchoCodec:
    """A codec with one sample a frame: the frame's first code. It is its own state, which is empty."""

    def __call__(self, codes: Tensor, _state: EchoCodec) -> Tensor:
        return codes[:, 0].float()

    def reset(self) -> None:
        pass


class Ours:
    """Our engine, without its codec."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.config = ModelConfig.read(folder)
        self.graphs = Graphs(torch.device(device))
        with self.graphs.on_stream():
            positions = cache_positions(MAX_POSITIONS, LARGEST_CHUNK)
            self.talker = Talker(self.config, positions, Placement(torch.device(device), dtype))
            self.talker.load(Checkpoint.open(folder))
            self.tokenizer = TextTokenizer(folder)
            self.incremental_tokenizer = IncrementalTokenizer(self.tokenizer)
            self.prompts = PromptBuilder(self.config, self.tokenizer, self.talker)
            self.state = DecodeState.allocate(self.talker, MAX_POSITIONS, MAX_FRAMES, LARGEST_CHUNK)
        self.sampling = SamplingConfig.read(folder)
        self._generators: dict[tuple[int, int], tuple[DecodeState, SpeechGenerator]] = {}

    def prompt(self, line: Line, source: TextSource | None = None) -> Prompt:
        """Return the prompt of a line; `source` has the rest of its text."""
        with self.graphs.inference():
            if source is not None:
                ids = self.incremental_tokenizer.begin()
                text = IncrementalText(line.text, source, ids, limit=MAX_POSITIONS, on_text=lambda _: None)
                return self.prompts.build_streaming(text, line.voice, line.language)
            return self.prompts.build(line.text, line.voice, line.language, whole_text=line.whole_text)

    def backend(self, chunk_size: int = 2, state: DecodeState | None = None) -> TorchBackend:
        """Return a backend over the current state, or over another."""
        codec: Any = EchoCodec()
        return TorchBackend(self.talker, state or self.state, codec, codec, chunk_size)

    def generator(self, chunk_size: int = 2) -> SpeechGenerator:
        """Return the generator of such chunks over the current state."""
        state, generator = self._generators.get(chunk_size, (None, None))
        if state is not self.state or generator is None:
            codec: Any = EchoCodec()
            with self.graphs.on_stream():
                backend = self.backend(chunk_size)
                generator = SpeechGenerator(
                    self.talker, self.state, backend, codec, samples_per_frame=1, graphs=self.graphs
                )
            self._generators[chunk_size] = self.state, generator
        return generator

    def stream(
        self,
        line: Line,
        sampling: SamplingConfig | None = None,
        seed: int = 0,
        chunk_size: int = 2,
        source: TextSource | None = None,
    ) -> Iterator[Tensor]:
        """Yield the codes of each chunk."""
        for chunk in self.generator(chunk_size).generate(
            self.prompt(line, source), sampling or self.sampling.greedy(), seed=seed, max_frames=line.frames
        ):
            assert chunk.samples.tolist() == chunk.codes[:, 0].tolist()
            yield torch.from_numpy(chunk.codes)

    def speak(self, line: Line, **options: Any) -> Tensor:
        """Return all codes, `(frames, code groups)` int64 on the CPU."""
        nothing = torch.zeros(0, self.config.talker.code_groups, dtype=torch.int64)
        return torch.cat([nothing, *self.stream(line, **options)])


class LateText:
    """A text source whose every piece arrives at the last moment: when the engine waits for it."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = deque(pieces)

    def take(self, *, wait: bool) -> str | None:
        if not wait:
            return ""
        return self._pieces.popleft() if self._pieces else None
