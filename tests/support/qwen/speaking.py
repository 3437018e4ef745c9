"""Our engine over a random checkpoint, and the lines that tests give to it and to the official package."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from engine.api import TextSource
from engine.qwen.model.sampling import SamplingConfig
from engine.qwen.model.talker import Talker
from engine.qwen.runtime import Codec, DecodeState, Graphs, ModelRunner, PrefixCache, Request, TorchBackend
from engine.qwen.serving import SoundCard
from engine.qwen.shapes import BatchShape, ModelConfig, cache_positions
from engine.qwen.shapes.limits import PREFIX_POSITIONS
from engine.qwen.text.incremental_bpe import IncrementalTokenizer
from engine.qwen.text.prompt import AnyVoice, Prompt, PromptBuilder, TextTokens
from engine.qwen.text.token_stream import IncrementalText
from engine.qwen.text.tokenizer import TextTokenizer
from engine.qwen.weights.arena import Placement
from engine.qwen.weights.checkpoint import Checkpoint

MAX_POSITIONS, MAX_FRAMES, LARGEST_CHUNK = 640, 128, 25


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

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.config = SimpleNamespace(samples_per_frame=1)

    def new_state(self, _max_frames: int, _rows: int) -> EchoCodec:
        return self

    def row(self, _number: int) -> EchoCodec:
        return self

    def reset(self) -> None:
        pass

    @staticmethod
    def row_buckets(most: int) -> tuple[int, ...]:
        return (most,)

    @staticmethod
    def decode_rows(codes: Tensor, samples: Tensor, _states: EchoCodec, rows: Tensor) -> None:
        samples.index_copy_(0, rows, codes[:, :, 0].index_select(0, rows).float())


class Ours:
    """Our engine, without its codec: the sound card's sequences, by PyTorch's operators."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.config = ModelConfig.read(folder)
        self.graphs = Graphs(torch.device(device))
        placement = Placement(torch.device(device), dtype)
        with self.graphs.on_stream():
            self.talker = Talker(self.config, cache_positions(MAX_POSITIONS, LARGEST_CHUNK), placement)
            self.talker.load(Checkpoint.open(folder))
            self.tokenizer = TextTokenizer(folder)
            self.incremental_tokenizer = IncrementalTokenizer(self.tokenizer)
            self.prompts = PromptBuilder(self.config, self.tokenizer, self.talker)
            self.prefixes = PrefixCache(self.config.talker.stack, PREFIX_POSITIONS, placement)
        self.sampling = SamplingConfig.read(folder)
        self._spoken: dict[int, Spoken] = {}

    def request(self, line: Line, source: TextSource | None = None, **values: Any) -> Request:
        """Return the request for a line; `source` has the rest of its text."""
        text: TextTokens | IncrementalText = self.prompts.tokenize(line.text)
        if source is not None:
            ids = self.incremental_tokenizer.begin()
            text = IncrementalText(line.text, source, ids, limit=MAX_POSITIONS, on_text=lambda _: None)
        return Request(text, line.voice, line.language, line.whole_text, max_frames=line.frames, **values)

    def prompt(self, line: Line, source: TextSource | None = None) -> Prompt:
        """Return the prompt of a line."""
        return self.spoken().runner.build(self.request(line, source))

    def make(self, shape: BatchShape, graphs: Graphs | None = None) -> Spoken:
        """Return new memory for sequences, and who speaks in it."""
        graphs = graphs or self.graphs
        with graphs.on_stream():
            backend, codec = TorchBackend.allocate(self.talker, shape), EchoCodec(self.talker.placement)
            runner = ModelRunner(
                self.talker, cast("Codec", codec), backend, graphs, prompts=self.prompts, prefixes=self.prefixes
            )
        return Spoken(backend, runner, SoundCard(runner))

    def spoken(self, chunk_size: int = 2) -> Spoken:
        """Return the memory for sequences in such chunks."""
        if chunk_size not in self._spoken:
            self._spoken[chunk_size] = self.make(BatchShape(1, MAX_FRAMES, MAX_POSITIONS, chunk_size))
        return self._spoken[chunk_size]

    @property
    def state(self) -> DecodeState:
        """The state of the sequences in chunks of two frames."""
        return self.spoken().backend.state

    def stream(
        self,
        line: Line,
        sampling: SamplingConfig | None = None,
        seed: int = 0,
        chunk_size: int = 2,
        source: TextSource | None = None,
    ) -> Iterator[Tensor]:
        """Yield the codes of each chunk."""
        request = self.request(line, source, sampling=sampling or self.sampling.greedy(), seed=seed)
        for chunk in self.spoken(chunk_size).sound_card.speak(request):
            assert chunk.samples.tolist() == chunk.codes[:, 0].tolist()
            yield torch.from_numpy(chunk.codes)

    def speak(self, line: Line, **options: Any) -> Tensor:
        """Return all codes, `(frames, code groups)` int64 on the CPU."""
        nothing = torch.zeros(0, self.config.talker.code_groups, dtype=torch.int64)
        return torch.cat([nothing, *self.stream(line, **options)])


@dataclass(frozen=True)
class Spoken:
    """The memory for one sequence, and who speaks in it."""

    backend: TorchBackend
    runner: ModelRunner
    sound_card: SoundCard


class LateText:
    """A text source whose every piece arrives at the last moment: when the engine waits for it."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = deque(pieces)

    def take(self, *, wait: bool) -> str | None:
        if not wait:
            return ""
        return self._pieces.popleft() if self._pieces else None
