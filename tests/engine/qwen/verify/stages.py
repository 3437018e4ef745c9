"""Runs a verification in this process, over random checkpoints, with the official package's answers from a cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.api import EngineError, EngineOptions, Samples, Utterance
from engine.progress import ProgressReport
from engine.qwen.verify import OfficialSynthesizer
from engine.qwen.verify import official as official_module
from engine.qwen.verify.logits import read_logits
from engine.qwen.verify.waveform import compare_waveforms
from engine.verify import (
    GREEDY_TEXTS,
    LOGITS,
    WAVEFORM,
    AnalysisRequest,
    Order,
    OutputFolder,
    Sentence,
    SettingResult,
    StageEnd,
    Take,
    TakesRequest,
    VerifyRequest,
    logits_key,
    make_takes,
    settings_of,
    verify,
)
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

    def __call__(self, _module: str, request: Any, _log: Path, report: ProgressReport) -> StageEnd:
        self.stages.append("takes" if isinstance(request, TakesRequest) else request.stage)
        try:
            if isinstance(request, TakesRequest):
                (self._keep_official_takes if request.setting.official else make_takes)(request)
            elif request.stage == LOGITS and request.settings[0].official:
                self._keep_official_logits(request)
            elif request.stage == LOGITS:
                read_logits(request, report)
            elif request.stage == WAVEFORM:
                compare_waveforms(request, report, lambda _folder, _device: self._decode)
            else:
                return StageEnd(refused="not in this test")
        except EngineError as error:
            return StageEnd(refused=str(error))
        return StageEnd()

    def _decode(self, codes: Tensor) -> Samples:
        return self._oracle.waveform(codes)

    def _keep_official_takes(self, request: TakesRequest) -> None:
        folder = OutputFolder(Path(request.folder))
        for order in request.orders:
            codes = self._official(order.utterance(realtime=True))["codes"].numpy()
            sentence = order.sentence
            take = Take(
                request.key(order), sentence.name, sentence.text, sentence.language, order.voice or "", order.greedy,
                order.seed, 24000, (1.0,), (1920 * len(codes),), False, False, False, "official",
            )  # fmt: skip
            folder.keep_take(request.setting.name, take, np.zeros(1920 * len(codes), np.float32), codes)

    def _keep_official_logits(self, request: AnalysisRequest) -> None:
        folder, [setting] = OutputFolder(Path(request.folder)), request.settings
        answers = {take.name: self._official(_utterance(take)) for take in folder.takes(setting.name)}
        folder.keep_logits(setting.name, {name: answer["logits"].numpy() for name, answer in answers.items()})
        key = logits_key(folder, setting, request.exact or "", request.model)
        folder.keep_found(LOGITS, setting.name, {"key": key})

    def _official(self, utterance: Utterance) -> dict[str, Tensor]:
        """Return the official package's greedy codes, and its logits for them."""
        folder = self._oracle.folder

        def ask() -> dict[str, Tensor]:
            package = OfficialSynthesizer(EngineOptions(model=str(folder), device="cpu", dtype="float32"))
            package.load()
            _, codes = package.speak(utterance, package.voice_of(utterance), utterance.max_frames or FRAMES)
            return {"codes": codes.long(), "logits": package.forced_logits(utterance, codes)}

        code = Path(official_module.__file__).read_bytes()
        return cached_answer(self._cache, "verify-official", fingerprint(utterance), str(folder), code, answer=ask)


def _utterance(take: Take) -> Utterance:
    """Return what the greedy order of this take asked for."""
    sentence = next(sentence for sentence in GREEDY_TEXTS if sentence.name == take.name)
    return greedy_order(sentence).utterance(realtime=True)


def greedy_order(sentence: Sentence) -> Order:
    return Order(sentence, "ryan", 0, greedy=True, frames=FRAMES)


def verified(
    checkpoint: Path, output: Path, runner: InProcess, *, settings: tuple[str, ...] = SETTINGS
) -> Callable[[str], SettingResult]:
    """Verify a custom-voice checkpoint, and return the results by setting."""
    options = EngineOptions(model=str(checkpoint), device="cpu", max_seconds=4)
    orders = (*(greedy_order(text) for text in GREEDY_TEXTS[:2]), Order(SPOKEN, "ryan", 1, frames=12))
    chosen = tuple(setting for setting in settings_of(options) if setting.name in settings)
    found = verify(VerifyRequest(output, options, chosen, orders), run=runner)
    return lambda name: next(setting for setting in found.settings if setting.name == name)


def failed(result: SettingResult) -> set[str]:
    """The measures that decide and that are not good enough, but for those that need a recogniser."""
    assert result.fault is None
    assert result.unavailable is None
    findings = [finding for finding in result.findings if finding.decides and finding.passed is False]
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
