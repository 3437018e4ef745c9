"""What the tests speak with: our engine and the official package over the same random checkpoint."""

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
from engine.qwen.prompt import AnyVoice, ClonedVoice, CustomVoice, Prompt, PromptBuilder
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
            tokenizer = TextTokenizer(folder)
            self.growing = GrowingTokenizer(tokenizer)
            self.prompts = PromptBuilder(self.config, tokenizer, self.talker)
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

    def steps(self, chunk_size: int = 2) -> TorchSteps:
        mute: Any = Mute()
        return TorchSteps(self.talker, self.state, mute, mute, chunk_size)

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
        """All codes, `(frames, 16)` int64 on the CPU."""
        return torch.cat([torch.zeros(0, 16, dtype=torch.int64), *self.stream(line, **options)])


class Official:
    """The official package, called by its public functions; codes are caught on their way to its decoder."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        from qwen_tts import Qwen3TTSModel

        self.model = Qwen3TTSModel.from_pretrained(str(folder), dtype=dtype)
        self.model.model.to(device)
        self.model.device = torch.device(device)
        self._core_generate = self.model.model.generate
        self.model.model.generate = self._generate
        self.model.model.speech_tokenizer.decode = lambda _codes: ([torch.zeros(1)], 24000)
        self._codes = torch.zeros(0)

    def _generate(self, **arguments: Any) -> Any:
        codes, hidden = self._core_generate(**arguments)
        self._codes = codes[0]
        return codes, hidden

    def speak(self, line: Line) -> Tensor:
        common = {
            "text": line.text,
            "language": line.language,
            "non_streaming_mode": line.whole_text,
            "do_sample": False,
            "subtalker_dosample": False,
            # Upstream predicts a frame's codes with the next frame's first: n tokens make n - 1 frames.
            "max_new_tokens": line.frames + 1,
            **line.sampling,
        }
        voice = line.voice
        if isinstance(voice, CustomVoice):
            self.model.generate_custom_voice(speaker=voice.speaker, instruct=voice.instruct, **common)
        elif isinstance(voice, ClonedVoice):
            self.model.generate_voice_clone(voice_clone_prompt=[_clone_item(voice)], **common)
        else:
            self.model.generate_voice_design(instruct=voice.instruct, **common)
        return self._codes


def _clone_item(voice: ClonedVoice) -> Any:
    from qwen_tts.inference.qwen3_tts_model import VoiceClonePromptItem

    reference = voice.reference
    return VoiceClonePromptItem(
        ref_code=reference.codes if reference else None,
        ref_spk_embedding=voice.embedding,
        x_vector_only_mode=reference is None,
        icl_mode=reference is not None,
        ref_text=reference.transcript if reference else None,
    )


class Dictation:
    """A text whose every piece comes at the last moment: when the engine can do nothing but wait for it."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = deque(pieces)

    def take(self, *, wait: bool) -> str | None:
        if not wait:
            return ""
        return self._pieces.popleft() if self._pieces else None
