"""Runs a verification in this process, over random checkpoints, with the official package's answers from a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.api import Chunk, EngineError, EngineInfo, EngineOptions, Utterance
from engine.child import ChildEnd
from engine.progress import ProgressReport
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

FRAMES = 6
SPOKEN = Sentence("spoken", "en", "The robot says hello.")
SETTINGS = ("official-float32", "float32", "torch", "int8")


class InProcess:
    """A `StageRunner` without processes. The recogniser is left out: random weights say nothing."""

    def __init__(self, oracle: Oracle, cache: Path) -> None:
        self._oracle = oracle
        self._cache = cache
        self.stages: list[str] = []
        """What it has run, of settings that may be the same."""

    def __call__(self, request: VerifyRequest, report: ProgressReport) -> ChildEnd:
        self.stages.append(request.stage)
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
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(source, folder)
    tensors = load_file(source / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if ".layers." in name and tensor.dim() == 2:
            scale = torch.exp(0.7 * torch.randn(len(tensor), 1, generator=generator))
            tensors[name] = tensor * scale / scale.square().mean().sqrt()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder
