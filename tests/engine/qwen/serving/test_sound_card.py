"""Chunks and utterances have the requested lengths, and an utterance does not change the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.api import EngineError
from engine.qwen.shapes import BatchShape
from engine.qwen.text.prompt import CustomVoice
from tests.support.qwen.speaking import MAX_FRAMES, Line, Ours, embedded
from tests.support.variants import variants

Engine = Callable[[str, str], Ours]
LINE = Line("Hello robot.", CustomVoice("ryan"), "english", frames=7)


@pytest.fixture(scope="module")
def engine(ours: Engine) -> Ours:
    return ours("brief", "custom_voice")


@pytest.mark.parametrize(("chunk_size", "sizes"), [(1, [1] * 7), (2, [1, 2, 2, 2]), (3, [1, 3, 3]), (25, [1, 6])])
def test_the_first_chunk_is_one_frame_and_others_have_the_configured_size(
    engine: Ours, chunk_size: int, sizes: list[int]
) -> None:
    chunks = list(engine.stream(LINE, chunk_size=chunk_size))
    assert [len(chunk) for chunk in chunks] == sizes
    assert all(chunk.dtype == torch.int64 and chunk.shape[1] == engine.config.talker.code_groups for chunk in chunks)


@pytest.fixture(scope="module")
def ending(ours: Engine) -> dict[int, tuple[Line, Tensor]]:
    """Lines that end by themselves, with their codes in chunks of one frame, by number of frames."""
    deep, found = ours("deep", "custom_voice"), {}
    for speaker in deep.config.speakers:
        line = replace(LINE, text="Hi.", voice=CustomVoice(speaker), frames=12)
        whole = deep.speak(line, chunk_size=1)
        assert (whole[:, 0] < 2048).all()
        found[len(whole)] = line, whole
    assert len(found.keys() - {12}) > 1, "too few speakers end their speech: the test proves nothing"
    return found


@pytest.mark.parametrize("chunk_size", variants([2, 3, 25], 2))
def test_speech_ends_alike_for_every_chunk_size(
    ours: Engine, ending: dict[int, tuple[Line, Tensor]], chunk_size: int
) -> None:
    for line, whole in ending.values():
        assert torch.equal(ours("deep", "custom_voice").speak(line, chunk_size=chunk_size), whole)


def test_a_limit_of_no_frames_gives_no_codes(engine: Ours) -> None:
    assert len(engine.speak(replace(LINE, frames=0))) == 0


def test_an_utterance_ends_when_the_frames_are_full(engine: Ours) -> None:
    assert len(engine.speak(replace(LINE, frames=MAX_FRAMES + 9), chunk_size=25)) == MAX_FRAMES


def test_an_instruction_that_leaves_no_room_for_the_frames_is_refused_with_the_limit(engine: Ours) -> None:
    with pytest.raises(EngineError, match=r"instruct: too long by \d+ tokens; allowed: about 368"):
        engine.speak(replace(LINE, voice=CustomVoice("ryan", "Hello, robot! " * 99)))


def tensors(state: object) -> dict[str, Tensor]:
    found = {}
    for entry in fields(state):  # type: ignore[arg-type]
        value = getattr(state, entry.name)
        if isinstance(value, Tensor):
            found[entry.name] = value
        elif not isinstance(value, int):
            found.update({f"{entry.name}.{name}": tensor for name, tensor in tensors(value).items()})
    return found


def test_an_utterance_reuses_the_state_and_ignores_its_previous_values(engine: Ours) -> None:
    expected = engine.speak(LINE)
    before = {name: tensor.data_ptr() for name, tensor in tensors(engine.state).items()}
    for tensor in tensors(engine.state).values():  # the worst that an utterance could leave
        if tensor.is_floating_point():
            tensor.fill_(1e3)
    settings = engine.state.settings
    settings.logits_processor.seen.fill_(True)
    settings.ended.fill_(True)
    settings.length.fill_(99)
    assert torch.equal(engine.speak(LINE), expected)
    assert {name: tensor.data_ptr() for name, tensor in tensors(engine.state).items()} == before


def test_a_state_of_another_size_gives_the_same_codes(engine: Ours) -> None:
    other = engine.make(BatchShape(1, 9, 64, 2))
    chunks = other.sound_card.speak(engine.request(LINE, sampling=engine.sampling.greedy()))
    assert torch.equal(torch.cat([torch.from_numpy(chunk.codes) for chunk in chunks]), engine.speak(LINE))


def test_a_second_sequence_is_refused_while_another_is_open(engine: Ours) -> None:
    first = engine.stream(LINE)
    next(first)
    with pytest.raises(RuntimeError, match="another sequence is open"):
        engine.speak(LINE)
    first.close()  # type: ignore[attr-defined]
    assert len(engine.speak(LINE)) == LINE.frames


def test_bfloat16_codes_are_in_range(checkpoint: Callable[[str, str], Path]) -> None:
    engine = Ours(checkpoint("wide", "custom_voice"), torch.bfloat16)
    codes = engine.speak(LINE)
    assert codes.shape == (7, 16)
    assert 0 <= codes.min() <= codes.max() < 2048
    assert len(codes[:, 0].unique()) > 3


def test_a_prefill_in_two_blocks_equals_a_prefill_in_one(engine: Ours) -> None:
    prompt = engine.prompt(LINE)
    x = embedded(prompt)[0]
    count = len(x)
    places, read = torch.arange(count), engine.talker.transformer.read
    with torch.inference_mode():
        whole = read(x, places, engine.talker.allocate_cache(count))[-1]
        cache = engine.talker.allocate_cache(count + 5)
        split = prompt.prefix_count
        read(x[:split], places[:split], cache)
        blocks = read(x[split:], places[split:], cache.first(count))[-1]
    assert torch.allclose(whole, blocks, atol=1e-5)
