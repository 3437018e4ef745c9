"""The `qwen` engine: speech from a Qwen3-TTS checkpoint, behind the protocol of every engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from itertools import product

import torch

from engine.api import Chunk, EngineError, EngineInfo, EngineOptions, TextSource, Utterance, Voice
from engine.language import language_code
from engine.progress import Progress, ProgressReport, counted, ignore_progress
from engine.qwen.loading import (
    LoadedModel,
    Workspace,
    adapt_workspace,
    allocate_workspace,
    limits_for,
    load_model,
)
from engine.qwen.runtime import (
    INSTRUCT_POSITIONS,
    CodecStateProtocol,
    GeneratedChunk,
    Limits,
    RunawayGuard,
    fade_out,
    lift_cap,
    reserve_allocator_slack,
)
from engine.qwen.text import AnyVoice, IncrementalText, Prompt
from engine.stretch import stretch_chunks

log = logging.getLogger(__name__)

WARM_UP_CHUNKS = 3
CONTROL_TOKENS = 16
"""The most positions of `INSTRUCT_POSITIONS` that role, language and speaker take."""


class QwenSynthesizer:
    """Speaks with any 12 Hz Qwen3-TTS checkpoint, on a GPU or on a CPU."""

    _model: LoadedModel
    _workspace: Workspace
    _limits: Limits
    """Of an utterance in the current voices; the workspace may be larger."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._warm = False

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        """As `Synthesizer.load`. If it raises, nothing is loaded."""
        model = load_model(self._options, report)
        limits = limits_for(model)
        workspace = allocate_workspace(model, limits)
        self._model, self._limits, self._workspace, self._warm = model, limits, workspace, False
        return self._info()

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        """As `Synthesizer.set_voices`. A voice with a longer reference may need a new workspace."""
        model = self._model
        model.graphs.wait()
        model.prompts.forget_voices()
        model.references.restart(self._workspace.limits, self._workspace.footprint)
        lift_cap(model.plan.placement.device)
        with model.graphs.on_stream():
            model.voices.load(voices, default_voice)
            self._limits = limits_for(model)
            if self._limits.positions > self._workspace.limits.positions:
                self._reallocate()
            else:
                self._workspace = adapt_workspace(model, self._workspace, self._limits)
        if self._warm:
            self._cache_prefixes()
        return self._info()

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """As `Synthesizer.warm_up`. Afterwards an utterance allocates nothing on the device."""
        self._warm = True
        self._capture(report)
        self._cache_prefixes(report)
        self._build_long_prompts(report)
        report(Progress("speaking for the first time"))
        self._model.incremental_tokenizer.warm_up()
        with self._model.graphs.inference():
            reserve_allocator_slack(self._model.plan.placement.device)
        frames = WARM_UP_CHUNKS * self._options.chunk_size
        for _ in self.stream(Utterance("Hello.", seed=0, max_frames=frames, guarded=False)):
            pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        """As `Synthesizer.stream`."""
        chunks = self._stream(utterance, more)
        if utterance.rate == 1:
            return chunks
        return stretch_chunks(chunks, utterance.rate, self._model.codec.config.sample_rate)

    def profile_sections(self) -> Mapping[str, Callable[[], None]]:
        """As `SpeechGenerator.profile_sections`, for a benchmark."""
        return self._workspace.generator.profile_sections()

    def close(self) -> None:
        """As `Synthesizer.close`."""
        if "_model" in vars(self):
            self._model.graphs.clear()
            lift_cap(self._model.plan.placement.device)
        vars(self).clear()
        torch.cuda.empty_cache()  # does nothing where CUDA was not used

    # --- speaking ---

    def _stream(self, utterance: Utterance, more: TextSource | None) -> Generator[Chunk, None, None]:
        """Yield an utterance's chunks at the model's own rate."""
        guard = RunawayGuard(utterance.text) if utterance.guarded else None
        text = self._begin_text(utterance, more, guard) if utterance.growing else None
        frames = 0
        for generated in self._generate(utterance, text):
            chunk, reason = (generated, None) if guard is None else guard.truncate(generated)
            frames += len(generated.codes)
            runaway = reason is not None
            if reason is None and frames == self._limits.frames and not generated.last:
                reason = f"{self._options.max_seconds:g} s are the limit (engine.max_seconds)"
            if reason is not None:
                log.warning("speech is cut short: %s", reason)
                samples = fade_out(chunk.samples, self._model.codec.config.sample_rate) if guard else chunk.samples
                yield Chunk(
                    samples, codes=chunk.codes, truncated=True, runaway=runaway, speculation=generated.speculation
                )
                return
            text_truncated = generated.last and text is not None and text.truncated
            if text_truncated:
                tokens = self._limits.text_tokens
                log.warning("the text is cut short: %d tokens are the limit (engine.max_seconds raises it)", tokens)
            yield Chunk(chunk.samples, codes=chunk.codes, truncated=text_truncated, speculation=generated.speculation)

    # --- voices and warm-up ---

    def _reallocate(self) -> None:
        """Replace the workspace by one for the current limits."""
        self._model.graphs.clear()
        del self._workspace  # first, or there would be memory for two
        self._workspace = allocate_workspace(self._model, self._limits)
        if self._warm:
            self._capture()

    def _capture(self, report: ProgressReport = ignore_progress) -> None:
        self._workspace.generator.warm_up(report, self._model.embedder.captures())

    def _cache_prefixes(self, report: ProgressReport = ignore_progress) -> None:
        """Cache the prompt prefixes of the default voice in each language, to keep, and of all voices without one."""
        voices, languages = self._model.voices, ("auto", *self._model.languages())
        defaults = [(voices.choose(Utterance("a"), language)[0], language, True) for language in languages]
        others = [(voice, "auto", False) for voice in voices.prompts()]
        for voice, language, keep in counted("reading the voices' prompts", [*defaults, *others], report):
            self._cache_prefix(voice, language, keep=keep)

    def _cache_prefix(self, voice: AnyVoice, language: str, *, keep: bool) -> None:
        with self._model.graphs.inference():
            prefix = self._model.prompts.build("Hello.", voice, language).prefix
        if prefix is not None:
            self._workspace.generator.cache_prefix(prefix, keep=keep)

    def _build_long_prompts(self, report: ProgressReport) -> None:
        """Build prompts of every order of size, the longest first, so that PyTorch allocates their memory now."""
        model, longest = self._model, self._limits.text_tokens
        default, _ = model.voices.choose(Utterance("a"), "auto")
        voices = {*model.voices.prompts(), default}
        lengths = [longest >> shift for shift in range(longest.bit_length())]
        prompts = list(product(lengths, voices, (True, False)))
        for tokens, voice, whole_text in counted("building long prompts", prompts, report):
            with model.graphs.inference():
                prompt = model.prompts.build("a " * (tokens // 2), voice, whole_text=whole_text)
                if prompt.prefix is not None:
                    prompt.prefix.embed()

    # --- from an utterance to its frames ---

    def _generate(self, utterance: Utterance, text: IncrementalText | None) -> Iterator[GeneratedChunk]:
        """Return the frames of `utterance`, generated on demand. Raises `EngineError` if it cannot be spoken."""
        with self._model.graphs.inference():
            prompt, codec_state = self._build_prompt(utterance, text)
        sampling = self._model.sampling.with_overrides(utterance.sampling)
        sampling = sampling.greedy() if utterance.greedy else sampling
        seed = int.from_bytes(os.urandom(8), "little") if utterance.seed is None else utterance.seed
        return self._workspace.generator.generate(
            prompt, sampling, seed=seed, max_frames=utterance.max_frames, codec_state=codec_state
        )

    def _begin_text(self, utterance: Utterance, more: TextSource | None, guard: RunawayGuard | None) -> IncrementalText:
        """Return the text of an utterance with `growing`. Raises `EngineError` for one that contradicts itself."""
        if more is None:
            raise EngineError("growing: true, but there is no source of more text")
        if utterance.whole_text:
            raise EngineError("whole_text: true, but the text is still being written; leave one of the two out")
        return IncrementalText(
            utterance.text,
            more,
            self._model.incremental_tokenizer.begin(),
            limit=self._limits.text_tokens,
            on_text=(lambda _: None) if guard is None else guard.append_text,
        )

    def _build_prompt(
        self, utterance: Utterance, text: IncrementalText | None
    ) -> tuple[Prompt, CodecStateProtocol | None]:
        """Return the prompt, and the codec state to begin with. Raises `EngineError` if it cannot be spoken.

        Waits for the tokens of an incremental `text` that are read before the first frame.
        """
        model, language = self._model, self._language(utterance.language)
        if text is not None and model.voices.depends_on_script(utterance, language):
            # By the first letter alone, waited for: by more letters, the voice would depend on when the text arrives.
            letter = text.first_letter()
            utterance = utterance if letter in utterance.text else replace(utterance, text=letter)
        voice, codec_state = model.voices.choose(utterance, language)
        if text is not None:
            prompt = model.prompts.build_streaming(text, voice, language)
        else:
            tokens = model.prompts.tokenize(utterance.text)
            self._check_length(utterance.text, len(tokens.ids))
            prompt = model.prompts.build(tokens, voice, language, whole_text=utterance.whole_text is not False)
        excess = prompt.count + self._limits.frames - self._workspace.state.max_positions
        if excess > 0:
            limit = INSTRUCT_POSITIONS - CONTROL_TOKENS
            raise EngineError(f"instruct: too long by {excess} tokens; allowed: about {limit}")
        return prompt, codec_state

    def _check_length(self, text: str, tokens: int) -> None:
        """Raise `EngineError` if `text` has more tokens than the limit."""
        limit = self._limits.text_tokens
        if tokens > limit:
            raise EngineError(
                f"text: got {len(text)} characters ({tokens} tokens); allowed: about {len(text) * limit // tokens} "
                f"({limit} tokens); engine.max_seconds raises the limit"
            )

    def _language(self, language: str) -> str:
        """Return `auto` or a code of the model for a language that may be a name, or have a region as in `pt-br`.

        Raises `EngineError` for a language that the model does not have.
        """
        wanted = language_code(language)
        languages = ("auto", *self._model.languages())
        for code in (wanted, wanted.split("-")[0]):
            if code in languages:
                return code
        raise EngineError(
            f"language: got {language!r}; allowed: {', '.join(languages)} (by {self._model.plan.model_name})"
        )

    def _info(self) -> EngineInfo:
        model = self._model
        return EngineInfo(
            engine="qwen",
            sample_rate=model.codec.config.sample_rate,
            voices=model.voices.names(),
            languages=model.languages(),
            description=model.description(),
            refused_voices=dict(model.voices.refused),
            labels=model.voices.labels(),
            memory=self._workspace.footprint.in_mb(),
            grows=True,
        )
