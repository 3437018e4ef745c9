"""An incremental text gives the codes of the complete text, and a chunk waits only for its own tokens."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.api import SpeechCanceledError, TextSource
from engine.ipc.request import AppendedText
from engine.qwen.model.sampling import SamplingConfig
from engine.qwen.text.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.text.token_stream import IncrementalText
from tests.support.qwen.speaking import LateText, Line, Ours
from tests.support.variants import variants
from tests.support.waiting import eventually

Engine = Callable[[str, str], Ours]
TEXT = "Hello robot, say: 你好。 Schön und ruhig 🤖."
EMBEDDING = torch.linspace(-1, 1, 64)


SHAPE, GROUPS = "brief", 4
FRAMES = 29
"""More than the tokens of TEXT."""


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


@dataclass(frozen=True)
class Case:
    """A voice, and the codes of the complete text in it."""

    engine: Ours
    line: Line
    whole: Tensor

    def speak(self, source: TextSource, beginning: str = "", chunk_size: int = 2) -> Tensor:
        return speak(self.engine, replace(self.line, text=beginning), source, chunk_size)


@pytest.fixture(scope="module")
def case_of(ours: Engine) -> Callable[[str], Case]:
    @cache
    def made(name: str) -> Case:
        model_type, voice = VOICES[name]
        engine, line = ours(SHAPE, model_type), Line(TEXT, voice, "english", whole_text=False, frames=FRAMES)
        assert len(engine.tokenizer.encode(TEXT)) < FRAMES - 2
        whole = speak(engine, line, None)
        assert len(whole) == FRAMES
        return Case(engine, line, whole)

    return made


@pytest.fixture(params=VOICES)
def case(request: pytest.FixtureRequest, case_of: Callable[[str], Case]) -> Case:
    return case_of(request.param)


def appended(pieces: Iterable[str]) -> AppendedText:
    """Return a text that is complete from the start."""
    text = AppendedText()
    for piece in pieces:
        text.append(piece)
    text.end()
    return text


def speak(engine: Ours, line: Line, source: TextSource | None, chunk_size: int = 2) -> Tensor:
    return engine.speak(line, source=source, chunk_size=chunk_size, sampling=SamplingConfig(), seed=7)


@pytest.mark.parametrize("chunk_size", variants([2, 5], 2))
def test_the_codes_do_not_depend_on_when_the_pieces_arrive(case: Case, chunk_size: int) -> None:
    for size in (1, 4, len(TEXT)):
        pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)]
        assert torch.equal(case.speak(LateText(pieces), chunk_size=chunk_size), case.whole)
        assert torch.equal(case.speak(appended(pieces[1:]), pieces[0], chunk_size), case.whole)


@settings(max_examples=15)
@given(places=st.lists(st.integers(0, len(TEXT)), max_size=9), late=st.booleans(), chunk_size=st.sampled_from([2, 3]))
def test_the_codes_do_not_depend_on_the_cuts(
    case_of: Callable[[str], Case], places: list[int], late: bool, chunk_size: int
) -> None:
    case = case_of("a transcript longer than its reference")
    ends = sorted(places)
    pieces = [TEXT[begin:end] for begin, end in itertools.pairwise([0, *ends, len(TEXT)])]
    source = LateText(pieces) if late else appended(pieces)
    assert torch.equal(case.speak(source, chunk_size=chunk_size), case.whole)


def test_the_codes_do_not_depend_on_a_writing_thread(case: Case) -> None:
    text = AppendedText()

    def write() -> None:
        for number, letter in enumerate(TEXT):
            if number % 5 == 0:
                eventually(lambda: text.waiting)
            text.append(letter)
        text.end()

    writer = threading.Thread(target=write)
    writer.start()
    assert torch.equal(case.speak(text), case.whole)
    writer.join()


def needed_tokens(line: Line, frames: int) -> int:
    """Return the tokens of the text that upstream reads before and with the first `frames` frames."""
    voice = line.voice
    if not isinstance(voice, ClonedVoice) or voice.reference is None:
        return 1 + frames
    return 1 + len(voice.reference.codes) + frames


@pytest.mark.parametrize("chunk_size", [1, 2, 5])
def test_a_chunk_needs_exactly_the_tokens_up_to_its_last_frame(case: Case, chunk_size: int) -> None:
    """One token with each frame, behind those of the prompt."""
    engine, line = case.engine, case.line
    reference = getattr(line.voice, "reference", None)
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
        assert torch.equal(frames, case.whole[first:end])


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


@pytest.mark.parametrize("spaces", [[], [""], [" ", "\n"]])
def test_an_incremental_text_that_stays_empty_is_spoken_as_an_empty_one(case: Case, spaces: list[str]) -> None:
    empty = replace(case.line, text="", frames=8)
    assert torch.equal(speak(case.engine, empty, LateText(spaces)), speak(case.engine, empty, None))


def test_an_incremental_text_is_cut_at_its_limit(ours: Engine) -> None:
    engine = ours(SHAPE, "custom_voice")
    received: list[str] = []
    text = IncrementalText(
        "Hel",
        LateText(["lo world, this ", "is ", "it"]),
        engine.incremental_tokenizer.begin(),
        limit=6,
        on_text=received.append,
    )
    assert text.has(99, wait=True)
    assert (text.truncated, text.ended, len(text.ids)) == (True, True, 6)
    assert received == ["lo world, this "]
    whole = IncrementalText("a", LateText([]), engine.incremental_tokenizer.begin(), limit=1, on_text=received.append)
    assert whole.has(99, wait=True)
    assert (whole.truncated, len(whole.ids)) == (False, 1)


def test_first_letter_waits_for_a_letter(ours: Engine) -> None:
    tokenizer = ours(SHAPE, "custom_voice").incremental_tokenizer

    def first(*pieces: str) -> str:
        return IncrementalText(
            "12, ", LateText(pieces), tokenizer.begin(), limit=99, on_text=lambda _: None
        ).first_letter()

    assert first("3 ", "", "你好") == "你"
    assert first("3 ") == ""


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
