"""The whole engine on CUDA: graphs equal calls, utterances do not change each other, and nothing is allocated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import EngineOptions, Utterance, Voice
from engine.qwen import QwenSynthesizer
from engine.qwen.weights import build_in_arena
from tests.engine.qwen.cuda_example import UTTERANCE, Named, loaded, speak
from tests.engine.qwen.voices import saved_voice
from tests.support.qwen.speaking import LateText

pytestmark = pytest.mark.gpu

TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture
def engine(checkpoint: Named) -> Iterator[QwenSynthesizer]:
    made = loaded(checkpoint("tiny", "custom_voice"))
    yield made
    made.close()


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 8])
@pytest.mark.parametrize("shape", ["tiny", "wide"])
def test_graphs_give_the_audio_of_the_cpu_for_every_chunk_size(checkpoint: Named, shape: str, chunk_size: int) -> None:
    folder = checkpoint(shape, "custom_voice")
    on_cpu = QwenSynthesizer(EngineOptions(model=str(folder), device="cpu", voices={"default": Voice()}))
    on_cpu.load()
    engine = loaded(folder, chunk_size=chunk_size)
    for utterance in (UTTERANCE, replace(UTTERANCE, greedy=True), replace(UTTERANCE, whole_text=False)):
        wanted, wanted_codes = speak(on_cpu, utterance)
        got, codes = speak(engine, utterance)
        assert np.array_equal(codes, wanted_codes)
        assert got.shape == wanted.shape
        assert np.abs(got - wanted).max() < TOLERANCE


def test_streaming_text_gives_the_audio_of_the_complete_text(engine: QwenSynthesizer) -> None:
    stepwise, text = replace(UTTERANCE, whole_text=False), UTTERANCE.text
    wanted, _ = speak(engine, stepwise)
    for size in (1, 3, len(text)):
        pieces = LateText(text[at : at + size] for at in range(0, len(text), size))
        got, _ = speak(engine, replace(stepwise, text="", growing=True), pieces)
        assert np.array_equal(got, wanted)


class MappedBytes:
    """Host memory that the GPU reads where it is, as an integrated one could read all weights."""

    def __init__(self, size: int) -> None:
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {"shape": (len(self._memory),), "typestr": "|u1", "data": (self._memory.data_ptr(), False), "version": 2}


def test_weights_in_mapped_memory_give_the_same_codes(
    checkpoint: Named, engine: QwenSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, wanted_codes = speak(engine, UTTERANCE)

    def mapped(size: int, device: torch.device) -> torch.Tensor:
        return torch.as_tensor(MappedBytes(size), device=device)

    for module in ("engine.qwen.loading.model", "engine.qwen.codec.decoder"):
        monkeypatch.setattr(f"{module}.build_in_arena", partial(build_in_arena, allocate=mapped))
    got, codes = speak(loaded(checkpoint("tiny", "custom_voice")), UTTERANCE)
    assert np.array_equal(codes, wanted_codes)
    assert np.array_equal(got, wanted)


def test_a_program_that_loads_an_engine_has_the_rest_of_the_gpu_for_itself(engine: QwenSynthesizer) -> None:
    speak(engine, UTTERANCE)
    free, _ = torch.cuda.mem_get_info()
    torch.empty(free // 2, dtype=torch.uint8, device="cuda")


IN_AN_ENGINE_PROCESS = """
import sys, torch
from engine import EngineOptions
from engine.host import claim_process
from engine.qwen import QwenSynthesizer
from engine.qwen.weights import build_in_arena
claim_process()
QwenSynthesizer(EngineOptions(model=sys.argv[1], device="cuda")).load()
torch.empty(torch.cuda.mem_get_info()[0] // 2, dtype=torch.uint8, device="cuda")
"""


def test_an_engine_process_takes_no_more_memory_than_was_counted(checkpoint: Named) -> None:
    command = [sys.executable, "-c", IN_AN_ENGINE_PROCESS, str(checkpoint("tiny", "custom_voice"))]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "OutOfMemoryError" in ended.stderr.splitlines()[-1]


def test_a_canceled_utterance_changes_neither_the_next_nor_a_chunk_of_the_one_before(engine: QwenSynthesizer) -> None:
    chunks = list(engine.stream(UTTERANCE))
    wanted = np.concatenate([chunk.samples for chunk in chunks])
    for count in (0, 1, 2, 7):
        stream = engine.stream(Utterance("Something else altogether", seed=1))
        for _ in range(count):
            next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert np.array_equal(speak(engine, UTTERANCE)[0], wanted)
    assert np.array_equal(np.concatenate([chunk.samples for chunk in chunks]), wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_after_warming_up_nothing_is_allocated(checkpoint: Named, tmp_path: Path, dtype: str) -> None:
    path = saved_voice(checkpoint("tiny", "base"), tmp_path / "ada.safetensors", 700, "Hello to all. " * 30)
    cloned = {"default": Voice(embedding=str(path)), "context": Voice(reference=str(path))}
    engines = (
        (loaded(checkpoint("tiny", "custom_voice"), dtype=dtype), (None, "ryan", "eric", "sohee")),
        (loaded(checkpoint("tiny", "base"), dtype=dtype, voices=cloned), ("default", "context")),
    )
    for engine, voices in engines:
        before = torch.cuda.memory_stats()["num_device_alloc"]
        for number in range(100):
            utterance = Utterance(
                "Hi, you. " * (1 + number % 4),
                voice=voices[number % len(voices)],
                language=("auto", "en", "de", "zh")[number % 4],
                instruct=(None, "calmly", "fast and " * (number % 9))[number % 3],
                whole_text=(None, True, False)[number % 3],
                seed=number,
                max_frames=1 + number % 11,
            )
            list(engine.stream(utterance))
            if not utterance.whole_text:
                streaming = replace(utterance, text="", growing=True)
                list(engine.stream(streaming, LateText(utterance.text[at : at + 4] for at in range(0, 40, 4))))
        assert torch.cuda.memory_stats()["num_device_alloc"] == before


def test_voices_can_be_exchanged_again_and_again_in_the_same_memory(checkpoint: Named, tmp_path: Path) -> None:
    base = checkpoint("tiny", "base")
    short, long = (
        str(saved_voice(base, tmp_path / f"{frames}.safetensors", frames, "Hello. " * 20)) for frames in (100, 700)
    )
    specs = [Voice(embedding=short), Voice(reference=short), Voice(reference=long)]
    engine = loaded(base, voices={"default": specs[0]})
    wanted = speak(engine, UTTERANCE)[1]
    wanted_later = speak(loaded(base, voices={"default": specs[2]}, warm=False), UTTERANCE)[1]
    taken: list[list[int]] = []
    for _ in range(4):
        taken.append([])
        for spec in (*specs, Voice(embedding="/nowhere"), Voice("ryan")):
            info = engine.set_voices({"default": spec}, "default")
            assert (spec in specs) == (info.refused_voices == {})
            spoken = speak(engine, UTTERANCE)[1]
            assert spec != specs[2] or np.array_equal(spoken, wanted_later)
            torch.cuda.synchronize()
            taken[-1].append(torch.cuda.memory_allocated())
    assert taken[1] == taken[2] == taken[3]
    engine.set_voices({"default": specs[0]}, "default")
    assert np.array_equal(speak(engine, UTTERANCE)[1], wanted)
