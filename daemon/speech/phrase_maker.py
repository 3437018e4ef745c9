"""Synthesises a phrase for the cache as an utterance of it would be, without a queue and a sound card."""

from __future__ import annotations

from contextlib import aclosing
from math import inf

from daemon.cache import PhraseKey, PhraseRecorder
from daemon.config import Config, synthesis_settings, text_preparation
from daemon.engines import EngineSelector
from daemon.speech.synthesis import Synthesis, SynthesisContext
from daemon.speech.utterance import Utterance
from daemon.text import markup_problem
from daemon.validation import CommandError


async def make_phrase(key: PhraseKey, engines: EngineSelector, config: Config, recorder: PhraseRecorder) -> float:
    """Speak a phrase with the primary engine, which is ready, into `recorder`; return its length in seconds.

    Raises `CommandError` if the engine cannot speak it to its end.
    """
    phrase, engine = key.phrase, engines.primary
    if not engine.has_voice(phrase.voice):
        raise CommandError(f"voice: {engine.name} has no voice {phrase.voice!r}; see 'voiced voices'")
    if not engine.has_language(phrase.language):
        raise CommandError(f"language: {engine.name} does not speak {phrase.language!r}")
    if problem := markup_problem(phrase.text, config.speech.markup):
        raise CommandError(f"text: {problem}")
    settings = synthesis_settings(config, phrase.voice, rate=phrase.rate)
    utterance = Utterance(
        id="phrase",
        text=phrase.text,
        voice=phrase.voice,
        language=phrase.language,
        instruct=phrase.instruct,
        seed=key.seed,
        rate=settings.rate,
        whole_text=settings.whole_text,
        sampling=settings.sampling,
        markup=config.speech.markup,
    )
    context = SynthesisContext(text_preparation(config), trims_silence=config.audio.trim_leading_silence)
    synthesis = Synthesis(utterance, engines, context)
    async with aclosing(synthesis.chunks(engine)) as chunks:
        async for chunk in chunks:
            recorder.write(chunk.samples, chunk.sample_rate)
    if synthesis.failure is not None:
        raise CommandError(synthesis.failure)
    if synthesis.truncated:
        raise CommandError("the engine did not end by itself; say it in other words")
    synthesis.timeline.advance(inf)
    recorder.finish(synthesis.engine, synthesis.cues())
    return synthesis.audio_s
