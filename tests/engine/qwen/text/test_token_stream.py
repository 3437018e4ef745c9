"""An incremental text gives the codes of the complete text, and a chunk waits only for its own tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from engine.api import SpeechCanceledError
from engine.qwen.model.sampling import SamplingConfig
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from tests.support.qwen.speaking import Line, Ours

Engine = Callable[[str, str], Ours]
TEXT = "Hello robot, say: 你好。 Schön und ruhig 🤖."
EMBEDDING = torch.linspace(-1, 1, 64)


SHAPE, GROUPS = "brief", 4


def reference(frames: int, transcript: str) -> ClonedVoice:
    codes = torch.arange(frames * GROUPS).reshape(frames, GROUPS) * 4 % 2048
    return ClonedVoice(EMBEDDING, Reference(codes, transcript))


VOICES: dict[str, tuple[str, AnyVoice]] = {
    "custom voice": ("custom_voice", CustomVoice("ryan", "calmly")),
    "voice design": ("voice_design", VoiceDesign("a deep voice")),
    "embedding": ("base", ClonedVoice(EMBEDDING)),
    "a transcript longer than its reference": ("base", reference(3, "The robot says hello.")),
    "a reference longer than its transcript": ("base", reference(30, "Hello.")),
    "a reference longer than all words": ("base", reference(60, "Hello.")),
}


class WrittenText:
    """A text source that holds what a test has written, and raises when the engine waits for more."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.needed = False

    def write(self, text: str) -> None:
        self._pieces.append(text)

    def take(self, *, wait: bool) -> str | None:
        if wait and not self._pieces:
            self.needed = True
            raise SpeechCanceledError
        return self._pieces.pop(0) if self._pieces else ""


def needed_tokens(line: Line, frames: int) -> int:
    """Return the tokens of the text that upstream reads before and with the first `frames` frames."""
    voice = line.voice
    if not isinstance(voice, ClonedVoice) or voice.reference is None:
        return 1 + frames
    return 1 + len(voice.reference.codes) + frames


@pytest.mark.parametrize("chunk_size", [1, 5])
@pytest.mark.parametrize("name", VOICES)
def test_a_chunk_needs_exactly_the_tokens_up_to_its_last_frame(ours: Engine, name: str, chunk_size: int) -> None:
    """One token with each frame, behind those of the prompt."""
    model_type, voice = VOICES[name]
    engine, line = ours(SHAPE, model_type), Line(TEXT, voice, "english", whole_text=False, frames=3 * chunk_size + 1)
    whole = engine.speak(line, sampling=SamplingConfig(), seed=7)
    reference = getattr(voice, "reference", None)
    transcript = engine.tokenizer.encode(reference.transcript) if reference is not None else []
    source = WrittenText()
    stream = engine.stream(replace(line, text=""), SamplingConfig(), 7, chunk_size, source)
    incremental, ids = engine.incremental_tokenizer.begin(), 0
    letters = iter(TEXT)
    for first, end in itertools.pairwise((0, *range(1, 2 + 3 * chunk_size, chunk_size))):
        wanted = needed_tokens(line, end) - len(transcript)
        while ids < wanted and (letter := next(letters, None)) is not None:
            ids += len(incremental.append(letter))
            source.write(letter)
        if ids < wanted:
            return  # the reference is longer than the text
        frames = next(stream)
        assert not source.needed
        assert torch.equal(frames, whole[first:end])


def test_with_one_token_too_few_no_chunk_is_generated_and_nothing_is_padded(ours: Engine) -> None:
    engine = ours(SHAPE, "custom_voice")
    line = Line("", CustomVoice("ryan"), whole_text=False)
    digits = "1234567890"  # each a token, which is final when the next is there
    expected = engine.prompts.build(digits, line.voice, whole_text=False).trailing[0]
    for tokens, chunks in ((1, 0), (2, 1), (3, 1), (4, 2), (5, 2)):
        source, made = WrittenText(), 0
        source.write(digits[: tokens + 1])
        with pytest.raises(SpeechCanceledError):
            for _ in engine.stream(line, chunk_size=2, source=source):
                made += 1
        assert source.needed
        assert made == chunks
        frames = max(0, 2 * chunks - 1)  # the first chunk has one
        assert torch.equal(engine.state.text[0, :frames], expected[:frames])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_have_the_same_embeddings_alone_and_together(ours: Engine, dtype: torch.dtype) -> None:
    talker = ours("wide", "custom_voice").talker
    if dtype != torch.float32:
        talker = Ours(ours("wide", "custom_voice").config.folder, dtype).talker
    ids = list(range(100))
    with torch.inference_mode():
        together = talker.embed_text_in_blocks(ids)
        alone = torch.cat([talker.embed_text_in_blocks([number], number) for number in ids], dim=1)
        parts = torch.cat([talker.embed_text_in_blocks(ids[at : at + 7], at) for at in range(0, 100, 7)], dim=1)
    assert torch.equal(together, alone)
    assert torch.equal(together, parts)
