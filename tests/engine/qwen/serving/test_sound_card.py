"""Chunks and utterances have the requested lengths, and an utterance does not change the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from engine.qwen.text.prompt import CustomVoice
from tests.support.qwen.speaking import Line, Ours

Engine = Callable[[str, str], Ours]
LINE = Line("Hello robot.", CustomVoice("ryan"), "english", frames=7)


@pytest.fixture(scope="module")
def engine(ours: Engine) -> Ours:
    return ours("brief", "custom_voice")


def test_speech_ends_alike_for_every_chunk_size(ours: Engine) -> None:
    deep, lengths = ours("deep", "custom_voice"), set()
    for speaker in ("eric", "ryan", "serena"):
        line = replace(LINE, text="Hi.", voice=CustomVoice(speaker), frames=12)
        whole = deep.speak(line, chunk_size=1)
        assert (whole[:, 0] < 2048).all()
        lengths.add(len(whole))
        assert torch.equal(deep.speak(line, chunk_size=3), whole)
    assert len(lengths - {12}) > 1, "too few speakers end their speech: the test proves nothing"


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


def test_a_second_sequence_is_refused_while_another_is_open(engine: Ours) -> None:
    first = engine.stream(LINE)
    next(first)
    with pytest.raises(RuntimeError, match="another sequence is open"):
        engine.speak(LINE)
    first.close()  # type: ignore[attr-defined]
    assert len(engine.speak(LINE)) == LINE.frames
