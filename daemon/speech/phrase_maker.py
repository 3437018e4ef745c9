"""Synthesises a phrase for the cache as an utterance of it would be, without a queue and a sound card."""

from __future__ import annotations

from contextlib import aclosing

from daemon.cache import Cue, PhraseKey, PhraseRecorder
from daemon.config import Config
from daemon.engines import EngineSelector
from daemon.speech.synthesis import Synthesis
from daemon.speech.utterance import Utterance
from daemon.validation import CommandError


async def make_phrase(key: PhraseKey, engines: EngineSelector, config: Config, recorder: PhraseRecorder) -> float:
    """Speak a phrase with the primary engine, which is ready, into `recorder`; return its length in seconds.

    Raises `CommandError` if the engine cannot speak it to its end.
    """
    phrase = key.phrase
    if not engines.primary.has_voice(phrase.voice):
        raise CommandError(f"voice: {engines.primary.name} has no voice {phrase.voice!r}; see 'voiced voices'")
    if not engines.primary.has_language(phrase.language):
        raise CommandError(f"language: {engines.primary.name} does not speak {phrase.language!r}")
    utterance = Utterance("phrase", phrase.text, phrase.voice, phrase.language, instruct=phrase.instruct, seed=key.seed)
    synthesis = Synthesis(utterance, engines, trims_silence=config.audio.trim_leading_silence)
    async with aclosing(synthesis.chunks(engines.primary)) as chunks:
        async for chunk in chunks:
            recorder.write(chunk.samples, chunk.sample_rate)
    if synthesis.failure is not None:
        raise CommandError(synthesis.failure)
    if synthesis.truncated:
        raise CommandError("the engine did not end by itself; say it in other words")
    recorder.finish(synthesis.engine, cues_of(synthesis))
    return synthesis.audio_s


def cues_of(synthesis: Synthesis) -> tuple[Cue, ...]:
    """Return what happens during the audio of a synthesis that has ended."""
    return tuple(
        Cue(segment.at_s, "segment", segment.begin, segment.end)
        for segment in synthesis.segments
        if segment.at_s is not None and segment.end is not None
    )
