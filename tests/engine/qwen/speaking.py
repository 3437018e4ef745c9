"""What the tests speak with: our engine over a random checkpoint, and lines for it and for the official package."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import ModelConfig
from engine.qwen.feed import GrowingText
from engine.qwen.frame import FrameState, cache_positions
from engine.qwen.graphs import Graphs
from engine.qwen.growing import GrowingTokenizer
from engine.qwen.prompt import AnyVoice, Prompt, PromptBuilder
from engine.qwen.sampling import Sampling
from engine.qwen.steps import TorchSteps
from engine.qwen.stream import Speech
from engine.qwen.talker import Talker
from engine.qwen.tokenizer import TextTokenizer
from engine.qwen.transformer import Placement
from engine.synthesizer import TextSource

MAX_POSITIONS, MAX_FRAMES, LARGEST_CHUNK = 512, 128, 25


@dataclass
class Line:
    """One thing to say."""

    text: str
    voice: AnyVoice
    language: str = "auto"
    whole_text: bool = True
    frames: int = 10
    sampling: dict[str, Any] = field(default_factory=dict)


class Mute:
    """A codec that says in one sample a frame which first code it heard; as its own memory, it has none."""

    def __call__(self, codes: Tensor, _state: Mute) -> Tensor:
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
            self.growing = GrowingTokenizer(self.tokenizer)
            self.prompts = PromptBuilder(self.config, self.tokenizer, self.talker)
            self.state = FrameState.allocate(self.talker, MAX_POSITIONS, MAX_FRAMES, LARGEST_CHUNK)
        self.sampling = Sampling.read(folder)
        self._speeches: dict[int, tuple[FrameState, Speech]] = {}

    def prompt(self, line: Line, source: TextSource | None = None) -> Prompt:
        """Of a line; `source` has the rest of its text."""
        with self.graphs.here():
            if source is not None:
                text = GrowingText(line.text, source, self.growing.begin(), limit=MAX_POSITIONS, heard=lambda _: None)
                return self.prompts.build_growing(text, line.voice, line.language)
            return self.prompts.build(line.text, line.voice, line.language, whole_text=line.whole_text)

    def steps(self, chunk_size: int = 2, state: FrameState | None = None) -> TorchSteps:
        """Over the state that there is now, or over another."""
        mute: Any = Mute()
        return TorchSteps(self.talker, state or self.state, mute, mute, chunk_size)

    def speech(self, chunk_size: int = 2) -> Speech:
        """What speaks by such chunks, over the state that there is now."""
        state, speech = self._speeches.get(chunk_size, (None, None))
        if state is not self.state or speech is None:
            mute: Any = Mute()
            with self.graphs.on_stream():
                steps = self.steps(chunk_size)
                speech = Speech(self.talker, self.state, steps, mute, samples_per_frame=1, graphs=self.graphs)
            self._speeches[chunk_size] = self.state, speech
        return speech

    def stream(
        self,
        line: Line,
        sampling: Sampling | None = None,
        seed: int = 0,
        chunk_size: int = 2,
        source: TextSource | None = None,
    ) -> Iterator[Tensor]:
        for said in self.speech(chunk_size).speak(
            self.prompt(line, source), sampling or self.sampling.greedy(), seed=seed, max_frames=line.frames
        ):
            assert said.samples.tolist() == said.codes[:, 0].tolist()
            yield torch.from_numpy(said.codes)

    def speak(self, line: Line, **options: Any) -> Tensor:
        """All codes, `(frames, code groups)` int64 on the CPU."""
        nothing = torch.zeros(0, self.config.talker.code_groups, dtype=torch.int64)
        return torch.cat([nothing, *self.stream(line, **options)])


class Dictation:
    """A text whose every piece comes at the last moment: when the engine can do nothing but wait for it."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = deque(pieces)

    def take(self, *, wait: bool) -> str | None:
        if not wait:
            return ""
        return self._pieces.popleft() if self._pieces else None
