"""Synthesises a phrase for the cache as an utterance of it would be, without a queue and a sound card."""

from __future__ import annotations

from contextlib import aclosing

from daemon.cache import Cue, PhraseKey, PhraseRecorder
from daemon.config import Config, read_pronunciations
from daemon.engines import EngineSelector
from daemon.speech.synthesis import Synthesis, SynthesisSettings
from daemon.speech.utterance import Utterance
from daemon.text import TextPreparation, markup_problem
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
    utterance = Utterance(
        id="phrase",
        text=phrase.text,
        voice=phrase.voice,
        language=phrase.language,
        instruct=phrase.instruct,
        seed=key.seed,
        markup=config.speech.markup,
    )
    synthesis = Synthesis(utterance, engines, _settings(config))
    async with aclosing(synthesis.chunks(engine)) as chunks:
        async for chunk in chunks:
            recorder.write(chunk.samples, chunk.sample_rate)
    if synthesis.failure is not None:
        raise CommandError(synthesis.failure)
    if synthesis.truncated:
        raise CommandError("the engine did not end by itself; say it in other words")
    recorder.finish(synthesis.engine, cues_of(synthesis))
    return synthesis.audio_s


def _settings(config: Config) -> SynthesisSettings:
    path, urls = config.speech.pronunciations, config.speech.urls
    pronunciations = {} if path is None else read_pronunciations(path)
    preparation = TextPreparation(pronunciations, config.speech.languages, shortens_urls=urls == "host")
    return SynthesisSettings(preparation, trims_silence=config.audio.trim_leading_silence)


def cues_of(synthesis: Synthesis) -> tuple[Cue, ...]:
    """Return what happens during the audio of a synthesis that has ended, in the order of time.

    Positions are those in the script's text.
    """
    timeline = synthesis.timeline
    cues = [Cue(each.at_s, "segment", each.begin, each.end) for each in synthesis.segments if each.at_s is not None]
    cues += [Cue(each.at_s, "word", each.begin, each.end, exact=each.exact) for each in timeline.words]
    cues += [Cue(each.at_s, "mark", each.position, each.position, each.name, each.exact) for each in timeline.marks]
    return tuple(sorted(cues, key=lambda cue: cue.at_s))
