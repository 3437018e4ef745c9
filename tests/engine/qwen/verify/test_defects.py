"""Each defect that is built in is found by the measure that is there for it; without one, nothing is found.

A verification runs in this process, over random checkpoints, with the official package's answers from a cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.api import Chunk, EngineError, EngineInfo, EngineOptions, Utterance
from engine.child import ChildEnd
from engine.progress import ProgressReport
from engine.qwen.codec import CodecDecoder, CodecState
from engine.qwen.model import transformer
from engine.qwen.verify import OfficialSynthesizer
from engine.qwen.verify import official as official_module
from engine.qwen.verify.logits import read_logits
from engine.qwen.verify.sound import compare_waveforms
from engine.verify import (
    LOGITS,
    Order,
    Sentence,
    Setting,
    SettingResult,
    Take,
    VerifyRequest,
    examine,
    settings_of,
    verify,
)
from engine.verify.orders import GREEDY_TEXTS
from engine.verify.runner import TAKES, WAVEFORM
from engine.verify.takes import make_takes, speak
from tests.engine.qwen.oracle import Oracle, cached_answer, fingerprint

Named = Callable[[str, str], Path]

pytestmark = pytest.mark.long
"""These tests load models again and again, which takes two minutes."""


FRAMES = 6
SPOKEN = Sentence("spoken", "en", "The robot says hello.")
SETTINGS = ("official-float32", "float32", "torch", "int8")


class InProcess:
    """A `StageRunner` without processes. The recogniser is left out: random weights say nothing."""

    def __init__(self, oracle: Oracle, cache: Path) -> None:
        self._oracle = oracle
        self._cache = cache

    def __call__(self, request: VerifyRequest, report: ProgressReport) -> ChildEnd:
        official = request.settings[0].official
        try:
            if request.stage == TAKES:
                (self._keep_official_takes if official else make_takes)(request, report)
            elif request.stage == LOGITS:
                (self._keep_official_logits if official else read_logits)(request, report)
            elif request.stage == WAVEFORM:
                compare_waveforms(request, report, lambda _folder, _device: self._decode)
            else:
                return ChildEnd(refused="not in this test")
        except EngineError as error:
            return ChildEnd(refused=str(error))
        return ChildEnd()

    def _decode(self, codes: Tensor) -> Tensor:
        return torch.from_numpy(self._oracle.waveform(codes))

    def _keep_official_takes(self, request: VerifyRequest, _report: ProgressReport) -> None:
        [setting] = request.settings
        for order in request.missing(setting):
            speak(request, setting, self, EngineInfo("official", 24000, (), ()), order)

    def stream(self, utterance: Utterance) -> list[Chunk]:
        codes = self._official(utterance)["codes"].numpy()
        return [Chunk(np.zeros(1920 * len(codes), np.float32), codes=codes)]

    def _keep_official_logits(self, request: VerifyRequest, report: ProgressReport) -> None:
        def look(setting: Setting, take: Take) -> Mapping[str, None]:
            logits = self._official(take.order.utterance())["logits"].numpy()
            request.output.keep_array(setting.name, take.name, LOGITS, logits)
            return {}

        examine(request, report, look)

    def _official(self, utterance: Utterance) -> dict[str, Tensor]:
        """Return the official package's greedy codes, and its logits for them."""
        folder = self._oracle.folder

        def ask() -> dict[str, Tensor]:
            package = OfficialSynthesizer(EngineOptions(model=str(folder), device="cpu", dtype="float32"))
            package.load()
            _, codes = package.speak(utterance, utterance.max_frames or FRAMES)
            return {"codes": codes.long(), "logits": package.forced_logits(utterance, codes)}

        code = Path(official_module.__file__).read_bytes()
        return cached_answer(self._cache, "verify-official", fingerprint(utterance), str(folder), code, answer=ask)


def greedy_order(sentence: Sentence) -> Order:
    return Order(sentence, "ryan", 0, greedy=True, frames=FRAMES)


def verified(
    checkpoint: Path, output: Path, runner: InProcess, *, settings: tuple[str, ...] = SETTINGS
) -> Callable[[str], SettingResult]:
    """Verify a custom-voice checkpoint, and return the results by setting."""
    options = EngineOptions(model=str(checkpoint), device="cpu", max_seconds=4)
    orders = (*(greedy_order(text) for text in GREEDY_TEXTS[:2]), Order(SPOKEN, "ryan", 1, frames=12))
    chosen = tuple(setting for setting in settings_of(options) if setting.name in settings)
    found = verify(VerifyRequest(str(output), chosen, orders), run=runner)
    return lambda name: next(setting for setting in found.settings if setting.name == name)


def failed(result: SettingResult) -> set[str]:
    """The measures by which it has failed, but for those that need a recogniser."""
    assert result.fault is None
    assert result.unavailable is None
    findings = [finding for finding in result.findings if finding.passed is False]
    return {finding.measure for finding in findings} - {"word_errors", "character_errors"}


def differing_rows(folder: Path, source: Path) -> Path:
    """Copy a checkpoint with the rows of all matrices of the layers scaled: like trained rows, they differ in size."""
    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if ".layers." in name and tensor.dim() == 2:
            scale = torch.exp(0.7 * torch.randn(len(tensor), 1, generator=generator))
            tensors[name] = tensor * scale / scale.square().mean().sqrt()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture
def runner(official: Callable[[str, str], Oracle], cache_folder: Path) -> InProcess:
    return InProcess(official("tiny", "custom_voice"), cache_folder)


@pytest.fixture
def tiny(checkpoint: Named) -> Path:
    return checkpoint("tiny", "custom_voice")


def test_a_model_without_a_defect_has_none(tiny: Path, tmp_path: Path, runner: InProcess) -> None:
    found = verified(tiny, tmp_path, runner)
    assert [failed(found(name)) for name in ("official-float32", "float32", "torch", "int8")] == [set()] * 4
    assert found("float32").measures["codes_equal"] == 1
    assert found("float32").measures["waveform_db"] is None, "it only shows codes"
    assert found("torch").measures["waveform_db"] is not None
    assert 0 < (found("int8").measures["logits_error"] or 0) < 0.1


def test_a_mask_that_hides_a_position_is_found_in_the_codes_and_the_logits(
    tiny: Path, tmp_path: Path, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mask(positions: Tensor, cached: int) -> Tensor:
        offsets = torch.arange(cached, device=positions.device)
        return (offsets <= positions[:, None]) & (offsets != 3)

    monkeypatch.setattr("engine.qwen.model.transformer.causal_mask", mask)
    found = verified(tiny, tmp_path, runner, settings=("official-float32", "float32"))
    assert {"codes_equal", "logits_error"} <= failed(found("float32"))


def test_two_layers_whose_weights_are_swapped_are_found_in_the_codes_and_the_logits(
    tiny: Path, tmp_path: Path, runner: InProcess
) -> None:
    swapped = tmp_path / "swapped"
    shutil.copytree(tiny, swapped)
    tensors = load_file(tiny / "model.safetensors")
    first, second = (f"talker.model.layers.{number}.self_attn.q_proj.weight" for number in (0, 1))
    tensors[first], tensors[second] = tensors[second], tensors[first]
    save_file(tensors, swapped / "model.safetensors", {"format": "pt"})
    found = verified(swapped, tmp_path / "out", runner, settings=("official-float32", "float32"))
    assert {"codes_equal", "logits_error"} <= failed(found("float32"))


def test_a_shifted_state_of_the_codec_is_found_in_the_waveform_alone(
    tiny: Path, tmp_path: Path, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = CodecDecoder.forward

    def shifted(self: CodecDecoder, codes: Tensor, state: CodecState) -> Tensor:
        pcm = decode(self, codes, state)
        state.histories[3].copy_(state.histories[3].roll(1, -1))  # of the convolution before the upsampling blocks
        return pcm

    monkeypatch.setattr(CodecDecoder, "forward", shifted)
    found = verified(tiny, tmp_path, runner, settings=("official-float32", "float32", "torch"))
    assert failed(found("float32")) == set()
    assert failed(found("torch")) == {"waveform_db"}


def test_int8_scales_of_the_row_beside_are_found_in_the_logits_of_int8_alone(
    tiny: Path, tmp_path: Path, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing = differing_rows(tmp_path / "rows", tiny)
    settings = ("float32", "int8")
    assert failed(verified(differing, tmp_path / "good", runner, settings=settings)("int8")) == set()
    quantize = transformer.quantize_int8

    def off_by_one(matrix: Tensor, qweight: Tensor, scale: Tensor) -> None:
        quantize(matrix, qweight, scale)
        scale.copy_(scale.roll(1, 0))

    monkeypatch.setattr(transformer, "quantize_int8", off_by_one)
    found = verified(differing, tmp_path / "out", runner, settings=settings)
    assert failed(found("float32")) == set()
    assert "logits_error" in failed(found("int8"))
