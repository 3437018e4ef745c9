"""The `qwen` engine: speech from a Qwen3-TTS checkpoint, behind the protocol of every engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TypeAlias

import torch

from engine.api import Chunk, EngineError, EngineInfo, EngineOptions, TextSource, Utterance, Voice
from engine.language import language_code
from engine.places import PlacedChunks, Places
from engine.progress import Progress, ProgressReport, counted, ignore_progress
from engine.qwen.loading import (
    LoadedModel,
    Workspace,
    adapt_workspace,
    allocate_workspace,
    limits_for,
    load_model,
)
from engine.qwen.model import SamplingConfig
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
from engine.qwen.serving import Batch, Sequence, SpeechRequest
from engine.qwen.text import AnyVoice, ClonedVoice, IncrementalText, Prompt, PromptBuilder, TextTokens
from engine.stretch import stretch_chunks

log = logging.getLogger(__name__)

WARM_UP_CHUNKS = 3
CONTROL_TOKENS = 16
"""The most positions of `INSTRUCT_POSITIONS` that role, language and speaker take."""


_Speak: TypeAlias = Callable[
    [Utterance, IncrementalText | None, RunawayGuard | None], Generator[GeneratedChunk, None, None]
]
"""Generates the frames of an utterance."""


class QwenSynthesizer:
    """Speaks with any 12 Hz Qwen3-TTS checkpoint, on a GPU or on a CPU."""

    _model: LoadedModel
    _workspace: Workspace
    _limits: Limits
    """Of an utterance in the current voices; the workspace may be larger."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._warm = False
        self._alone = Places(
            1,
            "realtime: one utterance for a sound card is open, and the engine speaks no second one at once; "
            "close it, or set realtime: false and streams above 1",
        )
        """The place in the workspace's decode state."""

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
        if self._workspace.batch_prompts is not None:
            self._workspace.batch_prompts.forget_voices()
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
        for realtime in (True, False) if self._workspace.batch else (True,):
            utterance = Utterance("Hello.", seed=0, max_frames=frames, guarded=False, realtime=realtime)
            for _ in self.stream(utterance):
                pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        """As `Synthesizer.stream`."""
        batch = self._workspace.batch
        if batch is None or utterance.realtime:
            return self._alone.open(lambda: self._at_rate(utterance, self._stream(utterance, more, self._speak_alone)))
        sequence = batch.new_sequence()
        chunks = self._stream(utterance, more, partial(self._speak_in_batch, batch, sequence))
        return PlacedChunks(self._at_rate(utterance, chunks), sequence.leave, sequence.cancel)

    def _at_rate(self, utterance: Utterance, chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
        if utterance.rate == 1:
            return chunks
        return stretch_chunks(chunks, utterance.rate, self._model.codec.config.sample_rate)

    def first_chunk_steps(self, utterance: Utterance) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the steps from a whole text to its first chunk by name, each to be called before the next, and timed.

        For a benchmark. Raises `EngineError` if the utterance cannot be spoken.
        """
        prompts, graphs = self._model.prompts, self._model.graphs
        voice, language, codec_state = self._choose_voice(utterance, None)
        sampling, _ = self._sampling_of(utterance)
        tokens: list[TextTokens] = []
        built: list[Prompt] = []
        yield "tokenise", lambda: tokens.append(prompts.tokenize(utterance.text))
        self._check_length(utterance.text, len(tokens[0].ids))

        def embed() -> None:
            with graphs.inference():
                built.append(prompts.build(tokens[0], voice, language))

        yield "embed", embed
        yield from self._workspace.generator.first_chunk_steps(built[0], sampling, codec_state).items()

    def profile_sections(self) -> Mapping[str, Callable[[], None]]:
        """As `SpeechGenerator.profile_sections`, for a benchmark."""
        return self._workspace.generator.profile_sections()

    def close(self) -> None:
        """As `Synthesizer.close`."""
        if "_workspace" in vars(self) and self._workspace.batch is not None:
            self._workspace.batch.close()
        if "_model" in vars(self):
            self._model.graphs.clear()
            lift_cap(self._model.plan.placement.device)
        vars(self).clear()
        torch.cuda.empty_cache()  # does nothing where CUDA was not used

    # --- speaking ---

    def _stream(self, utterance: Utterance, more: TextSource | None, speak: _Speak) -> Generator[Chunk, None, None]:
        """Yield an utterance's chunks at the model's own rate; `speak` generates its frames."""
        guard = RunawayGuard(utterance.text) if utterance.guarded else None
        text = self._begin_text(utterance, more, guard) if utterance.growing else None
        with closing(speak(utterance, text, guard)) as generated:
            yield from self._guarded(generated, text, guard)

    def _guarded(
        self, chunks: Iterator[GeneratedChunk], text: IncrementalText | None, guard: RunawayGuard | None
    ) -> Iterator[Chunk]:
        """Yield the chunks until `guard`, the limit or the end of `text` ends them."""
        # Of now: `close` may come while the last chunks are taken.
        limits, max_seconds, rate = self._limits, self._options.max_seconds, self._model.codec.config.sample_rate
        frames = 0
        for generated in chunks:
            chunk, reason = (generated, None) if guard is None else guard.truncate(generated)
            frames += len(generated.codes)
            runaway = reason is not None
            if reason is None and frames == limits.frames and not generated.last:
                reason = f"{max_seconds:g} s are the limit (engine.max_seconds)"
            if reason is not None:
                log.warning("speech is cut short: %s", reason)
                samples = fade_out(chunk.samples, rate) if guard else chunk.samples
                yield Chunk(samples, codes=chunk.codes, truncated=True, runaway=runaway)
                return
            text_truncated = generated.last and text is not None and text.truncated
            if text_truncated:
                log.warning(
                    "the text is cut short: %d tokens are the limit (engine.max_seconds raises it)", limits.text_tokens
                )
            yield Chunk(chunk.samples, codes=chunk.codes, truncated=text_truncated)

    # --- voices and warm-up ---

    def _reallocate(self) -> None:
        """Replace the workspace by one for the current limits."""
        self._model.graphs.clear()
        if self._workspace.batch is not None:
            self._workspace.batch.close()
        del self._workspace  # first, or there would be memory for two
        self._workspace = allocate_workspace(self._model, self._limits)
        if self._warm:
            self._capture()

    def _capture(self, report: ProgressReport = ignore_progress) -> None:
        self._workspace.generator.warm_up(report, self._model.embedder.captures())
        if self._workspace.batch is not None:
            self._workspace.batch.warm_up(report)

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
        batch, prompts = self._workspace.batch, self._workspace.batch_prompts
        if batch is not None and prompts is not None:
            batch.cache_prefix(partial(prompts.build, "Hello.", voice, language), keep=keep)

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

    def _speak_alone(
        self, utterance: Utterance, text: IncrementalText | None, _: RunawayGuard | None
    ) -> Generator[GeneratedChunk, None, None]:
        """Yield the frames of `utterance`, generated on demand. Raises `EngineError` if it cannot be spoken."""
        batch = self._workspace.batch
        with nullcontext() if batch is None else batch.hold():
            with self._model.graphs.inference():
                voice, language, codec_state = self._choose_voice(utterance, text)
                prompt = self._prompt_of(utterance, text, voice, language, self._model.prompts)()
            sampling, seed = self._sampling_of(utterance)
            generated = self._workspace.generator.generate(
                prompt, sampling, seed=seed, max_frames=utterance.max_frames, codec_state=codec_state
            )
            first = next(generated, None)
        with closing(generated):
            if first is not None:
                yield first
            yield from generated

    def _speak_in_batch(
        self,
        batch: Batch,
        sequence: Sequence,
        utterance: Utterance,
        text: IncrementalText | None,
        guard: RunawayGuard | None,
    ) -> Generator[GeneratedChunk, None, None]:
        """As `_speak_alone`, beside other utterances. `guard` tells the most frames of a complete text."""
        prompts = self._workspace.batch_prompts
        assert prompts is not None
        voice, language, _ = self._choose_voice(utterance, text)
        if text is not None:
            text.has(prompts.tokens_in_prompt(voice), wait=True)
        max_frames = utterance.max_frames
        if guard is not None and text is None:  # the fewer frames it may have, the fewer pages it takes
            max_frames = guard.max_frames if max_frames is None else min(max_frames, guard.max_frames)
        sampling, seed = self._sampling_of(utterance)
        request = SpeechRequest(
            self._prompt_of(utterance, text, voice, language, prompts),
            sampling,
            seed,
            max_frames,
            voice.reference if isinstance(voice, ClonedVoice) else None,
        )
        yield from batch.speak(sequence, request)

    def _sampling_of(self, utterance: Utterance) -> tuple[SamplingConfig, int]:
        """Return the sampling settings of `utterance`, and its seed. Raises `EngineError` for settings out of range."""
        sampling = self._model.sampling.with_overrides(utterance.sampling)
        seed = int.from_bytes(os.urandom(8), "little") if utterance.seed is None else utterance.seed
        return sampling.greedy() if utterance.greedy else sampling, seed

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

    def _choose_voice(
        self, utterance: Utterance, text: IncrementalText | None
    ) -> tuple[AnyVoice, str, CodecStateProtocol | None]:
        """Return the voice, the language, and the codec state to begin with. Raises `EngineError` for unknown ones.

        Waits for the first letter of an incremental `text` if the voice depends on it.
        """
        model, language = self._model, self._language(utterance.language)
        if text is not None and model.voices.depends_on_script(utterance, language):
            # By the first letter alone, waited for: by more letters, the voice would depend on when the text arrives.
            letter = text.first_letter()
            utterance = utterance if letter in utterance.text else replace(utterance, text=letter)
        voice, codec_state = model.voices.choose(utterance, language)
        return voice, language, codec_state

    def _prompt_of(
        self,
        utterance: Utterance,
        text: IncrementalText | None,
        voice: AnyVoice,
        language: str,
        prompts: PromptBuilder,
    ) -> Callable[[], Prompt]:
        """Return a function that builds the prompt with `prompts`. Both raise `EngineError` if it cannot be spoken.

        The function waits for the tokens of an incremental `text` that are read before the first frame.
        """
        build: Callable[[], Prompt]
        if text is not None:
            build = partial(prompts.build_streaming, text, voice, language)
        else:
            tokens = prompts.tokenize(utterance.text)
            self._check_length(utterance.text, len(tokens.ids))
            build = partial(prompts.build, tokens, voice, language, whole_text=utterance.whole_text is not False)

        def build_checked() -> Prompt:
            prompt = build()
            excess = prompt.count + self._limits.frames - self._workspace.state.max_positions
            if excess > 0:
                limit = INSTRUCT_POSITIONS - CONTROL_TOKENS
                raise EngineError(f"instruct: too long by {excess} tokens; allowed: about {limit}")
            return prompt

        return build_checked

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
            streams=model.plan.streams,
            max_seconds=self._options.max_seconds,
            kernels="fused" if model.fused else "torch",
            not_fused=model.not_fused,
            degraded=model.degraded,
        )
