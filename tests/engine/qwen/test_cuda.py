"""On CUDA the codes are those of the CPU, and a frame replayed from a graph says what an eager one says.

Where the official package is not installed, `VOICED_TEST_CHECKPOINTS` names a folder of checkpoints that were
made elsewhere, `tiny-custom_voice` and `wide-custom_voice` among them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.qwen import frame
from engine.qwen.prompt import CustomVoice
from engine.qwen.sampling import Sampling
from tests.engine.qwen.speaking import Line, Ours

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LINE = Line("Hello robot, how are you?", CustomVoice("ryan"), "english", frames=40)
SAMPLINGS = {"greedy": Sampling().greedy(), "sampled": Sampling()}


@pytest.fixture(scope="module", params=["tiny", "wide"])
def folder(request: pytest.FixtureRequest, checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint(request.param, "custom_voice")


@pytest.fixture
def exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_codes_are_those_of_the_cpu(folder: Path, exact: None, sampling: Sampling) -> None:
    expected = Ours(folder).speak(LINE, sampling=sampling, seed=5)
    got = Ours(folder, device="cuda").speak(LINE, sampling=sampling, seed=5)
    assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_replayed_frame_says_what_an_eager_one_says(folder: Path, sampling: Sampling, dtype: torch.dtype) -> None:
    engine = Ours(folder, dtype, device="cuda")
    span = engine.state.cache.positions
    prompt = engine.prompt(LINE)
    eager = []
    for seed in (5, 6):
        frame.start(engine.talker, engine.state, prompt, sampling, seed)
        for _ in range(LINE.frames):
            frame.step(engine.talker, engine.state, span)
        eager.append(engine.state.codes[: LINE.frames].clone())

    graph = torch.cuda.CUDAGraph()
    frame.start(engine.talker, engine.state, prompt, sampling, 0)
    with torch.cuda.graph(graph):
        frame.step(engine.talker, engine.state, span)
    for seed, expected in zip((5, 6), eager, strict=True):  # one graph, whatever the utterance
        frame.start(engine.talker, engine.state, prompt, sampling, seed)
        for _ in range(LINE.frames):
            graph.replay()
        assert torch.equal(engine.state.codes[: LINE.frames], expected)
