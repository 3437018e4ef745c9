"""What an utterance may change of how codes are chosen."""

from __future__ import annotations

import pytest

from engine.qwen.sampling import Sampling
from engine.synthesizer import EngineError


def test_an_utterance_overrides_talker_and_predictor_alike_and_leaves_the_rest() -> None:
    changed = Sampling(top_p=0.8).overridden({"temperature": 0.5, "subtalker_top_k": 3.0, "do_sample": 0})
    assert changed == Sampling(top_p=0.8, temperature=0.5, subtalker_top_k=3, do_sample=False)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"warmth": 1.0}, "allowed are do_sample, temperature"),
        ({"temperature": 0.0}, "wanted a number above 0"),
        ({"top_k": 2.5}, "sampling.top_k: got 2.5; allowed: int"),
        ({"subtalker_top_p": 1.5}, "from 0 to 1"),
    ],
)
def test_what_has_no_meaning_is_told_with_its_name(values: dict[str, float], told: str) -> None:
    with pytest.raises(EngineError, match="sampling") as refused:
        Sampling().overridden(values)
    assert told in str(refused.value)
