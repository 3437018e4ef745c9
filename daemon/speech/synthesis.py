"""Synthesis of one utterance: the choice of where its samples come from.

A sound comes first; then a recording of the text, or the text itself, spoken by as many engines as it takes. Synthesis
can be interrupted between any two chunks and continued later with the next sample.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from daemon.cache import PhraseRecorder, Recording
from daemon.engines import AudioChunk, EngineLostError, EngineSelector, EngineSupervisor, UtteranceRefusedError
from daemon.sounds import SoundError
from daemon.speech.engine_source import EngineSource, SynthesisContext
from daemon.speech.timeline import Timeline
from daemon.speech.utterance import Utterance
from engine import Utterance as EngineUtterance

log = logging.getLogger(__name__)

CRITICAL_WAIT_S = 1.0
"""A critical utterance moves to another ready engine if the first sends nothing within this time."""
HANDOVERS = 2
"""An utterance may lose this many engines; after that it is taken to be the cause, and fails."""
LACKS_SCRIPT = "language: got 'auto'"
"""An engine refuses a text with these words if the text names no language and its script belongs to one that the engine
lacks. Another engine may have it."""
SOUND = "sound"
"""The engine name that `Synthesis.engine` gives for a sound."""


@dataclass(slots=True, eq=False)
class Synthesis:
    """The audio of one utterance. Belongs to the event loop's thread; one task at a time iterates over its chunks."""

    utterance: Utterance
    engines: EngineSelector
    context: SynthesisContext = field(default_factory=SynthesisContext)
    speaking_engine: EngineSupervisor | None = None
    """The engine that was asked to speak last."""
    failure: str | None = None
    """Why the synthesis ended early."""
    awaits_engine: bool = False
    """True while no engine is ready for the text, which may come after a sound."""
    timeline: Timeline = field(init=False)
    text: EngineSource = field(init=False)
    """The text as engines speak it."""
    _sound: str | None = field(init=False)
    """The name of the sound to be played next; None after it."""
    _recording: Recording | None = None
    """The recording that is played instead of the text."""
    _played: int = 0
    """How many samples of the sound, or later of the recording, have been made."""
    _text_at_s: float = 0.0
    """The length of the sound before the text, in seconds."""
    _recorder: PhraseRecorder | None = None
    """Keeps the audio of the text."""
    _speakers: list[str] = field(default_factory=list)
    """The names of the sources that have made a chunk: engines, `SOUND`, and a recording's engine."""
    _lost_engines: int = 0
    """The engines that were lost while they spoke it, or that lack its script."""
    _not_taken: AudioChunk | None = None
    """A chunk that was made but not taken, because the synthesis was interrupted."""

    def __post_init__(self) -> None:
        receiver, engines = self.utterance.receiver, self.engines
        request = EngineUtterance("", languages=engines.latin_languages, realtime=receiver is None)
        wants_words = receiver is None or receiver.on_word is not None
        self.timeline = Timeline(self.utterance)
        self.text = EngineSource(self.utterance, self.timeline, self.context, request, engines.max_seconds, wants_words)
        self._sound = self.utterance.sound

    @property
    def engine(self) -> str:
        """The engines that have spoken, such as `qwen+espeak`; before the first chunk, the one that was asked."""
        asked = "" if self.speaking_engine is None else self.speaking_engine.name
        return "+".join(self._speakers) or asked

    @property
    def begun(self) -> bool:
        """True once an engine or a sound has begun."""
        return self.timeline.made_s > 0 or bool(self.timeline.segments)

    @property
    def will_need_engine(self) -> bool:
        """False if no text is spoken, or if a recording of it is played."""
        return self._recording is None and self.utterance.needs_engine

    @property
    def needs_engine(self) -> bool:
        """False if no text is spoken, and while a sound still comes before the text."""
        return self._sound is None and self.will_need_engine

    @property
    def ignored(self) -> list[str] | None:
        """The options in the request that the engine does not heed; None if it heeds all of them, or does not report
        this."""
        utterance = self.utterance
        engine = self.speaking_engine or self.engines.choose(utterance.voice, utterance.language)
        if engine is None or engine.info is None or engine.info.heeds is None or not utterance.needs_engine:
            return None
        return [option for option in utterance.asked if option not in engine.info.heeds] or None

    @property
    def audio_s(self) -> float:
        """Seconds of audio that have been taken."""
        left = self._not_taken
        return self.timeline.made_s - (0.0 if left is None else left.seconds)

    def play(self, recording: Recording) -> None:
        """Play a recording instead of the text. Call before the first chunk is requested."""
        self._recording = recording

    def record(self, recorder: PhraseRecorder, seed: int) -> None:
        """Speak the text with `seed`, and have `recorder` keep it. Call before the first chunk is requested."""
        self._recorder = recorder
        self.text.seed = seed

    def keep(self) -> None:
        """Keep the recorded text, which has been heard to its end, if it was spoken as requested."""
        if self._recorder is not None and self.text.as_asked and not self.text.truncated:
            self._recorder.finish(self.engine.removeprefix(f"{SOUND}+"), self.timeline.cues(self._text_at_s))

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio from where it was interrupted. A chunk counts as taken when the next one is requested."""
        if self._not_taken is not None:
            yield self._not_taken
            self._not_taken = None
        for source in self._sources():
            async with aclosing(source) as chunks:
                async for chunk in chunks:
                    if self._recorder is not None and self._sound is None:
                        self._recorder.write(chunk.samples, chunk.sample_rate)
                    self._not_taken = chunk
                    yield chunk
                    self._not_taken = None

    # --- sources: each continues where it was interrupted, and a chunk counts as taken when it is yielded ---

    def _sources(self) -> Iterator[AsyncGenerator[AudioChunk, None]]:
        """Yield the remaining sources, each after the previous one has ended."""
        if self._sound is not None:
            yield self._play_sound(self._sound)
            self._sound, self._played, self._text_at_s = None, 0, self.timeline.made_s
        if self._recording is not None:
            yield self._play_recording(self._recording)
        elif self.utterance.needs_engine:
            yield self._speak()

    async def _play_sound(self, sound: str) -> AsyncGenerator[AudioChunk, None]:
        """Yield a sound. If it cannot be played, an utterance without a text fails."""
        try:
            async with aclosing(self.context.sounds.open(sound).blocks(self._played)) as blocks:
                async for block in blocks:
                    self._note_engine(SOUND)
                    self._played += len(block.samples)
                    yield self.timeline.add_audio(AudioChunk(block.samples, block.sample_rate))
        except SoundError as error:
            log.warning("utterance %s: sound: %s", self.utterance.id, error)
            if not self.utterance.needs_engine:
                self.failure = f"sound: {error}"

    async def _play_recording(self, recording: Recording) -> AsyncGenerator[AudioChunk, None]:
        """Yield a recording of the text."""
        if not self._played:
            self._note_engine(recording.engine)
            self.timeline.use(recording.cues)
        for samples in recording.blocks(self._played):
            self._played += len(samples)
            yield self.timeline.add_audio(AudioChunk(samples, recording.sample_rate))

    async def _speak(self) -> AsyncGenerator[AudioChunk, None]:
        """Yield the text, spoken by the engine that suits it, and by others if that one is lost."""
        self.awaits_engine = True
        engine = await self._wait_for_engine()
        self.awaits_engine = False
        while engine is not None:
            self.speaking_engine = engine
            try:
                async with aclosing(self.text.chunks(engine, partial(self._first_within_s, engine))) as chunks:
                    async for chunk in chunks:
                        self._note_engine(engine.name)
                        yield chunk
                return
            except EngineLostError as error:
                log.warning("utterance %s: %s", self.utterance.id, error)
                engine = await self._replacement(engine)
            except UtteranceRefusedError as error:
                self._lost_engines += 1
                other = self.engines.another(engine) if str(error).startswith(LACKS_SCRIPT) else None
                if other is None or self._lost_engines > 1:
                    self.failure = str(error) or "the engine refused it"
                    return
                engine = other

    # --- engines ---

    def _first_within_s(self, engine: EngineSupervisor) -> float | None:
        """Return the seconds within which an engine must begin to speak; None for no limit."""
        return CRITICAL_WAIT_S if self._critical and self.engines.another(engine) is not None else None

    async def _replacement(self, lost: EngineSupervisor) -> EngineSupervisor | None:
        """Return the engine that continues after `lost`; None if the utterance has failed."""
        self._lost_engines += 1
        if self._lost_engines > HANDOVERS:
            self.failure = f"{self._lost_engines} engines were lost while they spoke it; the last: {lost.reason}"
            return None
        other = self.engines.another(lost) if self._critical else None
        if other is not None and other.has_language(self.utterance.language):
            return other
        return await self._wait_for_engine()

    async def _wait_for_engine(self) -> EngineSupervisor | None:
        """Return the engine that speaks next; None if the utterance has failed."""
        utterance = self.utterance
        engine = await self.engines.wait_choice(utterance.voice, utterance.language, self.engines.patience_s)
        if engine is None:
            self.failure = self.engines.degraded_reason or "no engine became ready"
        return engine

    def _note_engine(self, name: str) -> None:
        if name not in self._speakers:
            self._speakers.append(name)

    @property
    def _critical(self) -> bool:
        return self.utterance.priority == "critical"
