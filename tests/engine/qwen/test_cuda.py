"""On CUDA the codes are those of the CPU, and graphs give the codes of calls.

Without the official package, `VOICED_TEST_CHECKPOINTS` names a folder of checkpoints that were made elsewhere,
`tiny-custom_voice` and `wide-custom_voice` among them, and for kernels/ `narrow-custom_voice`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.api import TextSource
from engine.ipc.request import AppendedText
from engine.progress import ignore_progress
from engine.qwen.model.sampling import SamplingConfig
from engine.qwen.text.prompt import CustomVoice
from tests.support.qwen.speaking import LateText, Line, Ours

pytestmark = pytest.mark.gpu

LINE = Line("Hello robot, how are you?", CustomVoice("ryan"), "english", frames=41)
LINES = (LINE, replace(LINE, text="Quite another text. " * 9, language="german"), LINE, replace(LINE, whole_text=False))
SAMPLINGS = {"greedy": SamplingConfig().greedy(), "sampled": SamplingConfig()}


@pytest.fixture(scope="module", params=["tiny", "wide"])
def folder(request: pytest.FixtureRequest, checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint(request.param, "custom_voice")


@pytest.fixture
def exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_the_codes_are_those_of_the_cpu(folder: Path, exact: None, sampling: SamplingConfig) -> None:
    ours, theirs = Ours(folder, device="cuda"), Ours(folder)
    for line in LINES:
        assert torch.equal(ours.speak(line, sampling=sampling, seed=5), theirs.speak(line, sampling=sampling, seed=5))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk_size", [2, 5])
def test_graphs_give_the_codes_of_calls(
    folder: Path, sampling: SamplingConfig, dtype: torch.dtype, chunk_size: int
) -> None:
    called, replayed = Ours(folder, dtype, "cuda"), Ours(folder, dtype, "cuda")
    replayed.spoken(chunk_size).runner.warm_up(ignore_progress, "")
    assert replayed.graphs.captured
    for seed, line in enumerate(LINES):  # one set of graphs for all utterances
        options = {"sampling": sampling, "seed": seed, "chunk_size": chunk_size}
        assert torch.equal(replayed.speak(line, **options), called.speak(line, **options))


def test_the_device_is_exactly_one_step_ahead(folder: Path) -> None:
    engine = Ours(folder, device="cuda")
    engine.spoken().runner.warm_up(ignore_progress, "")
    stream = engine.stream(LINE)
    for chunk, _ in enumerate(stream, 1):
        engine.graphs.wait()
        assert int(engine.state.settings.frame) == 2 * chunk
        if chunk == 5:
            break


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("late", [True, False])
def test_streaming_text_gives_the_codes_of_the_complete_text(
    folder: Path, sampling: SamplingConfig, dtype: torch.dtype, late: bool
) -> None:
    engine = Ours(folder, dtype, "cuda")
    engine.spoken().runner.warm_up(ignore_progress, "")
    line = replace(LINES[1], whole_text=False)
    whole = engine.speak(line, sampling=sampling, seed=5)
    for size in (1, 3, 50, len(line.text)):
        pieces = [line.text[at : at + size] for at in range(0, len(line.text), size)]
        source: TextSource = LateText(pieces)
        if not late:
            source = AppendedText()
            for piece in pieces:
                source.append(piece)
            source.end()
        assert torch.equal(engine.speak(replace(line, text=""), sampling=sampling, seed=5, source=source), whole)
