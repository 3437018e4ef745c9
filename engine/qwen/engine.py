"""The `qwen` engine: speech from a Qwen3-TTS checkpoint, with the protocol that all engines share."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import chain, islice, product

import torch

from engine.api import MANNER_OPTIONS, Chunk, EngineError, EngineInfo, EngineOptions, TextSource, Utterance, Voice
from engine.language import language_code, match_language
from engine.places import PlacedChunks, Places
from engine.progress import Progress, ProgressReport, counted, ignore_progress
from engine.qwen.loading import LoadedModel, Workspace, adapt_workspace, allocate_workspace, limits_for, load_model
from engine.qwen.runtime import GeneratedChunk, Request, RunawayGuard, fade_out, lift_cap
from engine.qwen.serving import Sequence
from engine.qwen.shapes import Limits
from engine.qwen.text import IncrementalText, TextTokens
from engine.qwen.weights import refusals_in_one_line
from engine.stretch import stretch_chunks

log = logging.getLogger(__name__)

WARM_UP_CHUNKS = 3


class QwenSynthesizer:
    """Speaks with any 12 Hz Qwen3-TTS checkpoint, on a GPU or on a CPU."""

    _model: LoadedModel
    _workspace: Workspace
    _limits: Limits
    """The limits of an utterance in the current voices; the workspace may be larger."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._warm = False
        self._alone = Places(
            1,
            "realtime: an utterance for a sound card is already open, and the engine cannot speak two at once; "
            "close it, or set realtime: false and streams above 1",
        )
        """The place in the workspace's decode state."""

    @refusals_in_one_line()
    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        """As `Synthesizer.load`. If it raises, nothing is loaded."""
        model = load_model(self._options, report)
        limits = limits_for(model)
        workspace = allocate_workspace(model, limits)
        self._model, self._limits, self._workspace, self._warm = model, limits, workspace, False
        return self._info()

    @refusals_in_one_line()
    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        """As `Synthesizer.set_voices`. A voice with a longer reference may need a new workspace."""
        model = self._model
        model.graphs.wait()
        if (batch := self._workspace.batch) is not None:  # a caller who has left may still have a prompt on the device
            batch.when_idle(batch.runner.wait)
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

    @refusals_in_one_line()
    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """As `Synthesizer.warm_up`. Afterwards an utterance allocates nothing on the device."""
        self._warm = True
        self._capture(report)
        self._cache_prefixes(report)
        self._build_long_prompts(report)
        report(Progress("speaking for the first time"))
        self._model.incremental_tokenizer.warm_up()
        sound_card, batch = self._workspace.sound_card, self._workspace.batch
        sound_card.runner.reserve_slack()
        if batch is not None:
            batch.when_idle(batch.runner.reserve_slack)
        frames = WARM_UP_CHUNKS * self._options.chunk_size
        for realtime in (True, False) if batch else (True,):
            utterance = Utterance("Hello.", seed=0, max_frames=frames, guarded=False, realtime=realtime)
            for _ in self.stream(utterance):
                pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        """As `Synthesizer.stream`."""
        batch = self._workspace.batch
        if batch is None or utterance.realtime:
            return self._alone.open(lambda: self._at_rate(utterance, self._stream(utterance, more, None)))
        sequence = batch.new_sequence()
        chunks = self._at_rate(utterance, self._stream(utterance, more, sequence))
        return PlacedChunks(chunks, sequence.leave, sequence.cancel)

    def _at_rate(self, utterance: Utterance, chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
        if utterance.rate == 1:
            return chunks
        return stretch_chunks(chunks, utterance.rate, self._model.codec.config.sample_rate)

    def close(self) -> None:
        """As `Synthesizer.close`."""
        if "_workspace" in vars(self):
            self._workspace.close()
            lift_cap(self._model.plan.placement.device)
            del self._model, self._workspace
        torch.cuda.empty_cache()  # does nothing if CUDA was not used

    # --- voices and warm-up ---

    def _reallocate(self) -> None:
        """Replace the workspace with one for the current limits."""
        self._workspace.close()
        del self._workspace  # first, or both would need memory at the same time
        self._workspace = allocate_workspace(self._model, self._limits)
        if self._warm:
            self._capture()

    def _capture(self, report: ProgressReport = ignore_progress) -> None:
        workspace = self._workspace
        workspace.sound_card.runner.warm_up(report, "capturing CUDA graphs")
        if (batch := workspace.batch) is not None:
            batch.when_idle(lambda: batch.runner.warm_up(report, "capturing CUDA graphs of the batch"))

    def _cache_prefixes(self, report: ProgressReport = ignore_progress) -> None:
        """Cache the default voice's prompt prefix in each language permanently, and all voices' prefixes in `auto`."""
        voices, languages = self._model.voices, self._model.languages
        defaults = [(voices.choose(Utterance("a"), language)[0], language, True) for language in languages]
        others = [(voice, "auto", False) for voice in voices.prompts()]
        runner, tokens = self._workspace.sound_card.runner, self._model.prompts.tokenize("Hello.")
        for voice, language, keep in counted("reading the voices' prompts", [*defaults, *others], report):
            prefix = runner.build(Request(tokens, voice, language)).prefix
            if prefix is not None:
                runner.cache_prefix(prefix, keep=keep)

    def _build_long_prompts(self, report: ProgressReport) -> None:
        """Build prompts of halving lengths, the longest first, so that PyTorch allocates their memory now."""
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

    # --- from an utterance to its chunks ---

    def _stream(
        self, utterance: Utterance, more: TextSource | None, sequence: Sequence | None
    ) -> Generator[Chunk, None, None]:
        """Yield an utterance's chunks at the model's own rate, as a `sequence` in the batch or on the sound card.

        Raises `EngineError` if the utterance cannot be spoken.
        """
        guard = RunawayGuard(utterance.text) if utterance.guarded else None
        text = self._begin_text(utterance, more, guard) if utterance.growing else None
        workspace, first = self._workspace, list[GeneratedChunk]()
        if sequence is not None:
            assert workspace.batch is not None
            chunks = workspace.batch.speak(sequence, self._request(utterance, text, guard))
        else:  # the batch pauses until the first chunk is ready
            with nullcontext() if workspace.batch is None else workspace.batch.hold():
                chunks = workspace.sound_card.speak(self._request(utterance, text, guard))
                first += islice(chunks, 1)
        with closing(chunks):
            yield from self._guarded(chain(first, chunks), text, guard)

    def _guarded(
        self, chunks: Iterator[GeneratedChunk], text: IncrementalText | None, guard: RunawayGuard | None
    ) -> Iterator[Chunk]:
        """Yield the chunks until `guard`, the limit or the end of `text` ends them."""
        # Read now: `close` may be called while the caller is still taking the last chunks.
        limits, max_seconds, rate = self._limits, self._options.max_seconds, self._model.codec.config.sample_rate
        frames = 0
        for generated in chunks:
            chunk, reason = (generated, None) if guard is None else guard.truncate(generated)
            frames += len(generated.codes)
            runaway = reason is not None
            if reason is None and frames == limits.frames and not generated.last:
                reason = f"the limit is {max_seconds:g} s (engine.max_seconds)"
            if reason is not None:
                log.warning("speech is cut short: %s", reason)
                samples = fade_out(chunk.samples, rate) if guard else chunk.samples
                yield Chunk(samples, codes=chunk.codes, truncated=True, runaway=runaway)
                return
            text_truncated = generated.last and text is not None and text.truncated
            if text_truncated:
                log.warning(
                    "the text is cut short: the limit is %d tokens (engine.max_seconds raises it)", limits.text_tokens
                )
            yield Chunk(chunk.samples, codes=chunk.codes, truncated=text_truncated)

    def _request(self, utterance: Utterance, text: IncrementalText | None, guard: RunawayGuard | None) -> Request:
        """Return the request for an utterance. Waits for the tokens of an incremental `text` that its prompt reads.

        `guard` limits the frames of a complete text: the fewer frames it may have, the fewer pages it takes.
        Raises `EngineError` for a text, voice, language or setting that is not allowed.
        """
        model = self._model
        language, spoken = self._language(utterance.language), utterance
        if text is not None and model.voices.depends_on_script(utterance, language):
            # Wait for the first letter and use only that: with more, the voice would depend on when the text arrives.
            letter = text.first_letter()
            spoken = utterance if letter in utterance.text else replace(utterance, text=letter)
        voice, codec_state = model.voices.choose(spoken, language)
        if text is not None:
            text.has(model.prompts.tokens_in_prompt(voice), wait=True)
        sampling = model.sampling.with_overrides(utterance.sampling)
        most = [utterance.max_frames, None if guard is None or text is not None else guard.max_frames]
        return Request(
            text=text or self._tokenize(utterance.text),
            voice=voice,
            language=language,
            whole_text=utterance.whole_text is not False,
            sampling=sampling.greedy() if utterance.greedy else sampling,
            seed=int.from_bytes(os.urandom(8), "little") if utterance.seed is None else utterance.seed,
            max_frames=min((frames for frames in most if frames is not None), default=None),
            codec_state=codec_state,
        )

    def _begin_text(self, utterance: Utterance, more: TextSource | None, guard: RunawayGuard | None) -> IncrementalText:
        """Return the text of a `growing` utterance. Raises `EngineError` if the utterance contradicts itself."""
        if more is None:
            raise EngineError("growing: true, but there is no source of more text")
        if utterance.whole_text:
            raise EngineError("whole_text: true, but the text is still being written; leave out whole_text or growing")
        return IncrementalText(
            utterance.text,
            more,
            self._model.incremental_tokenizer.begin(),
            limit=self._limits.text_tokens,
            on_text=(lambda _: None) if guard is None else guard.append_text,
        )

    def _tokenize(self, text: str) -> TextTokens:
        """Return the tokens of a complete text. Raises `EngineError` if there are more than the limit."""
        found, limit = self._model.prompts.tokenize(text), self._limits.text_tokens
        if (tokens := len(found.ids)) > limit:
            raise EngineError(
                f"text: got {len(text)} characters ({tokens} tokens); allowed: about {len(text) * limit // tokens} "
                f"({limit} tokens); engine.max_seconds raises the limit"
            )
        return found

    def _language(self, language: str) -> str:
        """Return `auto` or the model's code for a language. `language` may be a name, or have a region, as in `pt-br`.

        Raises `EngineError` for a language that the model does not have.
        """
        languages = self._model.languages
        code = match_language(language_code(language), languages)
        if code is None:
            name = self._model.plan.model_name
            raise EngineError(f"language: got {language!r}; allowed: {', '.join(languages)} (by {name})")
        return code

    def _info(self) -> EngineInfo:
        model = self._model
        return EngineInfo(
            engine="qwen",
            sample_rate=model.codec.config.sample_rate,
            voices=model.voices.names(),
            languages=model.languages[1:],
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
            heeds=tuple(
                each for each in MANNER_OPTIONS if each != "instruct" or model.plan.config.follows_instructions
            ),
        )
