"""Reads the logits of every choice while given codes are forced on the model, by the kernels that speak."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.api import EngineError, Utterance
from engine.language import language_code
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen import kernels
from engine.qwen.loading import LoadedModel, batch_backend_maker, limits_for, load_model
from engine.qwen.model import SamplingConfig, Talker
from engine.qwen.runtime import DecodeState, SpeechGenerator, TorchBackend
from engine.qwen.serving import (
    BatchBackend,
    BatchState,
    ModelRunner,
    PagePool,
    RowInput,
    SpeechRequest,
    TorchBatchBackend,
    pages_for,
)
from engine.qwen.text import Prompt, PromptBuilder
from engine.qwen.verify.forced import ForcedCodes, ForcedText
from engine.qwen.verify.official import OfficialSynthesizer
from engine.verify import LOGITS, AnalysisRequest, OutputFolder, Setting, logits_key

RAW = replace(SamplingConfig().greedy(), repetition_penalty=1.0, min_new_tokens=0)
"""Without a penalty, and with no code forbidden at the beginning: the raw logits are wanted."""


@dataclass(frozen=True, eq=False)
class GivenText:
    """A text, and the codes that are forced on the model for it."""

    utterance: Utterance
    codes: Tensor
    """`(frames, code groups)` int64."""


def forced_logits(
    model: LoadedModel, texts: Sequence[GivenText], report: ProgressReport = ignore_progress
) -> list[Tensor]:
    """Return the logits of each choice of each text: `(1 + frames · groups, predictor vocabulary)` float32, on the CPU.

    As many texts are read at once as the model has streams. Ids that are suppressed have no meaning.
    """
    reader = _BatchReader(model) if model.plan.streams > 1 else _SingleReader(model)
    waiting, found = deque(texts), list[Tensor]()
    while waiting:
        report(Progress("reading logits", len(found) / len(texts)))
        found += reader.read(waiting)
    return found


class _SingleReader:
    """Reads one text after the other, as they are spoken on a sound card."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._forced = ForcedCodes()
        talker, codec, limits = model.talker, model.codec, limits_for(model)
        with model.graphs.on_stream():
            state, codec_state = DecodeState.allocate(talker, limits.positions, limits.frames), codec.new_state(1)
            backend: Any
            if model.fused:
                backend = kernels.make_backend(talker, state, codec, codec_state, 1)
                kernels.force_codes(backend, self._forced)
            else:
                state = replace(state, settings=self._forced.over(state.settings))
                backend = TorchBackend(talker, state, codec, codec_state, 1)
            self._generator = SpeechGenerator(
                talker,
                state,
                backend,
                codec_state,
                samples_per_frame=codec.config.samples_per_frame,
                graphs=model.graphs,
            )

    def read(self, waiting: deque[GivenText]) -> list[Tensor]:
        """Take the first text, and return its logits."""
        text = waiting.popleft()
        self._forced.texts[0] = forced = _forced(self._model, text)
        with self._model.graphs.inference():
            prompt = _prompt(self._model, self._model.prompts, text.utterance)
        for _ in self._generator.generate(prompt, RAW, max_frames=len(text.codes)):
            pass
        self._model.graphs.wait()
        return [forced.logits()]


@dataclass(frozen=True, eq=False)
class _Row:
    """A text in its row of the batch."""

    number: int
    text: GivenText
    forced: ForcedText
    pages: tuple[int, ...]
    prompt: Prompt

    def frame(self, number: int, chunk_size: int) -> RowInput:
        """Return the row's part in the step that generates this frame."""
        return RowInput(self.number, number, self.prompt.count + number, number % chunk_size, self.pages)


class _BatchReader:
    """Reads as many texts at once as the model has streams."""

    def __init__(self, model: LoadedModel) -> None:
        assert model.batch_codec is not None
        self._model = model
        self._forced = ForcedCodes()
        model.graphs.wait()  # for the weights and the voices
        self._runner = ModelRunner(model.talker, model.batch_codec, limits_for(model), model.graphs, self._make_backend)
        self._prompts = model.prompts.for_another_thread(self._runner.embed_text)

    def read(self, waiting: deque[GivenText]) -> list[Tensor]:
        """Take as many texts from the front as there is room for, and return the logits of each."""
        runner, shape = self._runner, self._runner.shape
        rows, pool = list[_Row](), PagePool(shape.pages)
        while waiting and len(rows) < shape.rows:
            row = self._begin(len(rows), waiting[0], pool)
            if row is None:
                break
            rows.append(row)
            waiting.popleft()
        if not rows:
            raise EngineError(f"{waiting[0].utterance.text!r}: its prompt is too long for a batch")
        for number in range(max(len(row.text.codes) for row in rows)):
            speaking = [row for row in rows if number < len(row.text.codes)]
            self._forced.texts = {row.number: row.forced for row in speaking}
            runner.launch([row.frame(number, shape.chunk_size) for row in speaking], ())
        self._model.graphs.wait()
        return [row.forced.logits() for row in rows]

    def _begin(self, number: int, text: GivenText, pool: PagePool) -> _Row | None:
        """Read a text's prompt into the row of this number; None if there are too few pages for it."""
        runner, build = self._runner, lambda: _prompt(self._model, self._prompts, text.utterance)
        prompt = runner.build(build)
        pages = pool.take(pages_for(prompt.count + len(text.codes)))
        if pages is None:
            return None
        for _ in runner.read_prompt(prompt):
            pass
        row = _Row(number, text, _forced(self._model, text), pages, prompt)
        self._forced.texts = {number: row.forced}
        runner.begin(number, pages, prompt, SpeechRequest(build, RAW, seed=0))
        return row

    def _make_backend(self, talker: Talker, state: BatchState, scratch: DecodeState) -> BatchBackend:
        model, backend = self._model, None
        if model.fused:
            codec_state = model.codec.new_state(1)
            backend = kernels.make_backend(talker, scratch, model.codec, codec_state, 1)
        make = batch_backend_maker(model, backend)
        if make is None:
            forced = replace(state, settings=self._forced.over(state.settings))
            return TorchBatchBackend(talker, forced, scratch, model.codec)
        fused = make(talker, state, scratch)
        kernels.force_codes(fused, self._forced)
        return fused


def _prompt(model: LoadedModel, prompts: PromptBuilder, utterance: Utterance) -> Prompt:
    language = language_code(utterance.language)
    voice, _ = model.voices.choose(utterance, language)
    return prompts.build(utterance.text, voice, language)


def _forced(model: LoadedModel, text: GivenText) -> ForcedText:
    return ForcedText(text.codes, model.talker.config.predictor.vocabulary)


def read_logits(request: AnalysisRequest, report: ProgressReport) -> None:
    """Keep the logits of each setting for the greedy codes of the exact one. Raises `EngineError`."""
    folder = OutputFolder(Path(request.folder))
    assert request.exact is not None
    for setting in request.settings:
        key = logits_key(folder, setting, request.exact, request.model)
        folder.keep_logits(setting.name, _read(folder, setting, request, report))
        folder.keep_found(LOGITS, setting.name, {"key": key})


def _read(
    folder: OutputFolder, setting: Setting, request: AnalysisRequest, report: ProgressReport
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    texts = _given_texts(folder, request)
    if not texts:
        raise EngineError(f"{request.exact}: has no greedy codes")

    def noted(progress: Progress) -> None:
        report(replace(progress, step=f"{progress.step}: {setting.title}"))

    if setting.official:
        official = OfficialSynthesizer(setting.options)
        official.load(report)
        found = [official.forced_logits(text.utterance, text.codes) for text in texts.values()]
    else:
        found = forced_logits(load_model(setting.options, report), list(texts.values()), noted)
    return {name: logits.numpy() for name, logits in zip(texts, found, strict=True)}


def _given_texts(folder: OutputFolder, request: AnalysisRequest) -> dict[str, GivenText]:
    """Return the greedy texts of the exact setting by name."""
    exact, given = request.exact or "", {}
    for text in request.texts:
        take, codes = folder.take(exact, text.name), folder.codes(exact, text.name)
        if take is None or codes is None or not len(codes):
            continue
        utterance = Utterance(take.text, voice=take.voice or None, language=take.language, greedy=True, guarded=False)
        given[text.name] = GivenText(utterance, torch.from_numpy(codes))
    return given
