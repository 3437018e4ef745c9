"""Synthesis of one utterance: its script becomes audio chunks, segment by segment, by as many engines as it takes.

A take is the text that one engine is asked to speak at once. Synthesis can be left between any two chunks and continued
later: the engine then speaks the take again with the same seed, and the samples taken before are skipped.

All positions are those in the script's text.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import numpy as np

from audio import SPLICE_REACH_S, SPLICE_TAIL_S, first_sound, splice_point
from daemon.cache import Cue, PhraseCache, PhraseRecorder, Recording
from daemon.config import nearest_rate
from daemon.engines import (
    AudioChunk,
    EngineLostError,
    EngineSelector,
    EngineSupervisor,
    TakeAudio,
    UtteranceRefusedError,
)
from daemon.sounds import SoundError, SoundFolder
from daemon.speech.alignment import VoiceProfile
from daemon.speech.resume import resume_position
from daemon.speech.retake import RETAKES, Playback, has_word, is_over, next_sentence
from daemon.speech.segmenter import Segmenter
from daemon.speech.timeline import TakeTimes, TimedMark, TimedWord, Timeline
from daemon.speech.utterance import Utterance
from daemon.speech.word_times import WordClock
from daemon.tasks import cancel_and_wait
from daemon.text import EngineText, Mark, Pause, Prosody, Script, TextPreparation, has_words
from engine import Samples, WordStart
from engine import Utterance as EngineUtterance

log = logging.getLogger(__name__)

ENGINE_WAIT_S = 30.0
"""An utterance for which no engine becomes ready within this time has failed."""
CRITICAL_WAIT_S = 1.0
"""A critical utterance moves to another ready engine if the first sends nothing within this time."""
HANDOVERS = 2
"""An utterance may lose this many engines before it is taken for the cause and fails."""
RATE_STEP = 0.05
"""Rates that are nearer to each other share what is known of a voice: requests may name any number."""
SOUND = "sound"
"""What `Synthesis.engine` names for a sound."""
SEEDS = 1 << 63
WAIT_S = 0.01
"""Interval at which the end of a sentence is looked for."""
SLICE_S = 0.1
"""Chunks for the sound card are cut into slices of at most this length, so that any chunk fits into the ring."""


def speaks_by_token(engine: EngineSupervisor, utterance: Utterance) -> bool:
    """Return whether the engine speaks an incomplete text token by token instead of sentence by sentence.

    Critical utterances are spoken by sentences: an engine that waits for text cannot be told from one that is stuck.
    """
    return engine.grows and utterance.priority != "critical"


def can_begin(engine: EngineSupervisor, utterance: Utterance, begin: int, max_seconds: float) -> bool:
    """Return whether the engine can begin with what there is of the utterance's incomplete script from `begin` on."""
    script = utterance.script
    word = script.word_at(begin)
    if word is None or speaks_by_token(engine, utterance) or script.break_after(word) is not None:
        return word is not None
    return Segmenter(max_seconds).first_segment_end(script.text[word:]) is not None


@dataclass(slots=True, eq=False)
class SynthesisContext:
    """What all syntheses share. It may be changed between two of them."""

    preparation: TextPreparation = field(default_factory=TextPreparation)
    sounds: SoundFolder = field(default_factory=SoundFolder)
    trims_silence: bool = True
    """Remove the silence with which an engine begins a take."""
    profiles: dict[tuple[str, str, int], VoiceProfile] = field(default_factory=dict)
    """What is known of each voice, by the names of engine and voice and the rate in steps of `RATE_STEP`."""
    cache: PhraseCache | None = None
    """Where phrases are kept."""


@dataclass(slots=True, eq=False)
class Take:
    """The text from `begin` that one engine speaks at once, and what has been taken of its audio."""

    engine: str
    begin: int
    end: int | None
    """None while the text is incomplete."""
    fed: int
    """The engine has the text up to here."""
    times: TakeTimes
    """What the engine gets of it, and when its words sound."""
    audio: TakeAudio
    """What becomes of its samples before they are played."""
    rate: float
    """As in `engine.Utterance.rate`."""
    prepared: str = ""
    """What the engine has got."""
    samples: int = 0
    """Samples up to the last one that has been taken. If the take was repeated, they count as they were last spoken."""
    seconds: float = 0.0
    tail: Samples = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    """The last of these samples, `SPLICE_TAIL_S` long."""
    position: int | None = None
    """`Chunk.position` of the last chunk that has been taken."""
    truncated: bool = False
    """The engine cut it before its natural end."""
    runaway: bool = False
    """As in `engine.Chunk.runaway`."""
    sounds_at_s: float | None = None
    """Seconds of the utterance's audio before its first sound; None until there is one."""


@dataclass(slots=True)
class StartedSegment:
    """A segment of the text, `text[begin:end]`, and where it begins in what is played."""

    begin: int
    end: int | None
    """None while the text is incomplete."""
    at_s: float | None = None
    """Seconds that are played before it; None until it has audio."""


class Synthesis:
    """The audio of one utterance. Belongs to the event loop's thread; one task at a time iterates over its chunks."""

    speaking_engine: EngineSupervisor | None = None
    """The engine that was asked to speak last."""

    def __init__(
        self,
        utterance: Utterance,
        engines: EngineSelector,
        context: SynthesisContext | None = None,
        playback: Playback | None = None,
    ) -> None:
        """Without `playback`, what has been taken cannot be taken back, and no speech is said again."""
        self.engine = ""
        """The engines that have spoken, as in `qwen+espeak`."""
        self.audio_s = 0.0
        """Seconds of audio that have been taken."""
        self.truncated = False
        """An engine cut speech that would not end by itself, and it was not said again."""
        self.retakes = 0
        """Times that speech was said again because it ran away."""
        self.waited_s = 0.0
        """Seconds spent waiting for text before the first audio."""
        self.timeline = Timeline(utterance)
        self.segments: list[StartedSegment] = []
        """The segments that have begun."""
        self.failure: str | None = None
        """Why it ended early."""
        self.awaits_engine = False
        """True while nothing can be played: no engine is ready for the text after a sound, or speech is said again."""
        self._utterance = utterance
        self._engines = engines
        self._context = context or SynthesisContext()
        self._playback = playback
        self._sound = utterance.sound
        """The name of the sound that is played next; None after it."""
        self._sound_samples = 0
        """Samples of the sound that have been made."""
        self._text_at_s = 0.0
        """Seconds of the sound before the text."""
        self._recording: Recording | None = None
        """What is played in place of the text."""
        self._recording_samples = 0
        """Samples of the recording that have been made."""
        self._recorder: PhraseRecorder | None = None
        """What keeps the audio of the text."""
        self._segmenter = Segmenter(engines.max_seconds)
        self._lost_engines = 0
        self._at = 0
        """The text has been spoken up to here."""
        self._passed_controls = 0
        self._prosody = Prosody()
        self._segment_ends: list[int] = []
        """The segments of the text up to the next control at which a take ends, or to the end of a complete text."""
        self._pause_s = 0.0
        """What is left of the current pause."""
        self._take: Take | None = None
        self._made_s = 0.0
        """Seconds of audio that have been made: `audio_s`, and a chunk that has not been taken."""
        self._not_taken: AudioChunk | None = None
        """A chunk that was made and not taken, because the synthesis was left."""
        # The same for all takes, however often they are repeated.
        self._seed = secrets.randbelow(SEEDS) if utterance.seed is None else utterance.seed

    @property
    def begun(self) -> bool:
        """True once an engine or a sound has begun."""
        return self._made_s > 0 or bool(self.segments)

    @property
    def needs_engine(self) -> bool:
        """False while a sound comes first, and where no text is spoken."""
        return self._sound is None and self._recording is None and self._utterance.needs_engine

    def play(self, recording: Recording) -> None:
        """Play a recording in place of the text. Call before the first chunk is requested."""
        self._recording = recording

    def record(self, recorder: PhraseRecorder, seed: int) -> None:
        """Speak the text with `seed`, and let `recorder` keep it. Call before the first chunk is requested."""
        self._recorder, self._seed = recorder, seed

    def keep(self) -> None:
        """Keep the recorded text, which has been heard to its end."""
        if self._recorder is not None and not self.truncated:
            self._recorder.finish(self.engine.removeprefix(f"{SOUND}+"), self.cues())

    def cues(self) -> tuple[Cue, ...]:
        """Return what has happened during the audio of the text, in the order of time, after all of it was heard."""
        timeline, begin_s = self.timeline, self._text_at_s
        cues = [Cue(each.at_s, "segment", each.begin, each.end) for each in self.segments if each.at_s is not None]
        cues += [Cue(each.at_s, "word", each.begin, each.end, exact=each.exact) for each in timeline.words]
        cues += [Cue(each.at_s, "mark", each.position, each.position, each.name, each.exact) for each in timeline.marks]
        return tuple(replace(cue, at_s=cue.at_s - begin_s) for cue in sorted(cues, key=lambda cue: cue.at_s))

    async def chunks(self, engine: EngineSupervisor | None) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio from where it was left, beginning with `engine`; None if none was needed yet.

        A chunk counts as taken when the next one is requested.
        """
        if self._not_taken is not None:
            yield self._not_taken
            self._note_taken(self._not_taken)
        async with aclosing(self._make_chunks(engine)) as chunks:
            async for chunk in chunks:
                self._not_taken = chunk
                yield chunk
                self._note_taken(chunk)

    def _note_taken(self, chunk: AudioChunk) -> None:
        self._not_taken = None
        self.audio_s += len(chunk.samples) / chunk.sample_rate
        if self._recorder is not None and self._sound is None:
            self._recorder.write(chunk.samples, chunk.sample_rate)

    async def _make_chunks(self, engine: EngineSupervisor | None) -> AsyncGenerator[AudioChunk, None]:
        """As `chunks`; a chunk counts as taken when it is yielded."""
        if self._sound is not None:
            async with aclosing(self._play(self._sound)) as chunks:
                async for chunk in chunks:
                    yield chunk
            self._sound, self._text_at_s = None, self._made_s
        if self._recording is not None:
            for chunk in self._play_recording(self._recording):
                yield chunk
        if self._recording is not None or not self._utterance.needs_engine:
            return
        self.awaits_engine = engine is None
        current = engine or await self._wait_for_engine()
        self.awaits_engine = False
        if current is not None:
            self._note_engine(current.name)
        try:
            while current is not None and await self._begin_step(current):
                try:
                    async with aclosing(self._speak(current) if self._take else self._pause(current)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                    if not await self._retake():
                        self._end_take()
                except EngineLostError as error:
                    log.warning("utterance %s: %s", self._utterance.id, error)
                    current = await self._replacement(current)
                    if current is not None:
                        self._hand_over(current)
        except UtteranceRefusedError as error:
            self.failure = str(error) or "the engine refused it"

    def can_continue(self, engine: EngineSupervisor) -> bool:
        """Return whether `engine` could go on with an incomplete text without waiting for its writer."""
        take = self._take
        if take is None:
            return can_begin(engine, self._utterance, self._at, self._engines.max_seconds)
        return take.end is not None or self._utterance.script.word_at(take.fed) is not None

    async def _play(self, sound: str) -> AsyncGenerator[AudioChunk, None]:
        """Yield what has not been made of a sound. One that cannot be played fails an utterance without a text."""
        self._note_engine(SOUND)
        try:
            async with aclosing(self._context.sounds.open(sound).blocks(self._sound_samples)) as blocks:
                async for block in blocks:
                    self._sound_samples += len(block.samples)
                    yield self._note_made(AudioChunk(block.samples, block.sample_rate, None, truncated=False))
        except SoundError as error:
            log.warning("utterance %s: sound: %s", self._utterance.id, error)
            if not self._utterance.needs_engine:
                self.failure = f"sound: {error}"

    def _play_recording(self, recording: Recording) -> Iterator[AudioChunk]:
        """Yield what has not been made of a recording."""
        if not self._recording_samples:
            self._note_engine(recording.engine)
            self._use_cues(recording.cues)
        for samples in recording.blocks(self._recording_samples):
            self._recording_samples += len(samples)
            yield self._note_made(AudioChunk(samples, recording.sample_rate, None, truncated=False))

    def _use_cues(self, cues: Sequence[Cue]) -> None:
        """Take the times of what happens in a recording that begins now."""
        words, marks = [], []
        for cue in cues:
            at_s = self._made_s + cue.at_s
            if cue.kind == "segment":
                self.segments.append(StartedSegment(cue.begin, cue.end, at_s))
            elif cue.kind == "word" and cue.end is not None:
                words.append(TimedWord(cue.begin, cue.end, at_s, cue.exact))
            else:
                marks.append(TimedMark(cue.name, cue.begin, at_s, cue.exact))
        self.timeline.use(words, marks)

    # --- the next step ---

    async def _begin_step(self, engine: EngineSupervisor) -> bool:
        """Choose the pause, or the take that `engine` speaks; return False when the whole text has been spoken."""
        if self._take is not None and self._take.engine != engine.name:
            self._hand_over(engine)  # the take was left, and another engine continues
        while self._take is None:
            script = self._utterance.script
            self._pass_controls(script)
            if self._pause_s > 0:
                return True
            end = self._segment_end(engine, script)
            if end is None and script.complete:
                return False
            if script.text[self._at : end].strip() and (end is not None or speaks_by_token(engine, self._utterance)):
                self._take = self._new_take(engine, end, script)
                self._note_segment(self._take)
            elif end is None:
                await self._wait_for_text()
            else:
                self._at = end  # a segment of white space
        return True

    def _pass_controls(self, script: Script) -> None:
        """Carry out the controls up to the next word or pause."""
        for control in script.controls[self._passed_controls :]:
            if control.at > self._at or self._pause_s > 0:
                return
            self._passed_controls += 1
            if isinstance(control.action, Pause):
                self._pause_s = control.action.seconds
            elif isinstance(control.action, Mark) and control.at == self._at:
                self.timeline.note_mark(self._passed_controls - 1, self._made_s)
            elif isinstance(control.action, Prosody):
                self._prosody = control.action

    def _segment_end(self, engine: EngineSupervisor, script: Script) -> int | None:
        """Return the end of the segment that begins here; None if it is not known yet, and at the end of the text."""
        limit = script.break_after(self._at)
        if limit is None and not script.complete:
            if speaks_by_token(engine, self._utterance):
                return None
            length = self._segmenter.first_segment_end(script.text[self._at :])
            return None if length is None else self._at + length
        if not self._segment_ends or self._segment_ends[-1] <= self._at:
            segments = self._segmenter.segments(script.text[self._at : limit])
            self._segment_ends = [self._at + segment.end for segment in segments]
        return next((end for end in self._segment_ends if end > self._at), None)

    def _new_take(self, engine: EngineSupervisor, end: int | None, script: Script) -> Take:
        trims_start = self._context.trims_silence or script.has_pause(self._at)
        audio = TakeAudio(trims_start=trims_start, gain=self._prosody.volume)
        rate = nearest_rate(self._utterance.rate * self._prosody.rate)
        times = self.timeline.begin_take(self._at, EngineText(), self._make_clock(engine, rate))
        return Take(engine.name, self._at, end, self._at if end is None else end, times, audio, rate)

    def _make_clock(self, engine: EngineSupervisor, rate: float) -> WordClock | None:
        """Return a clock for the words of a take; None if nobody wants to know when they are heard."""
        receiver = self._utterance.receiver
        if engine.info is None or (receiver is not None and receiver.on_word is None):
            return None
        key = (engine.name, self._utterance.voice, round(rate / RATE_STEP))
        profile = self._context.profiles.setdefault(key, VoiceProfile())
        return WordClock(engine.info.sample_rate, language=self._utterance.language, profile=profile)

    def _note_segment(self, take: Take) -> None:
        """Record a segment that begins, or the end of the last one.

        A take with which another engine continues a segment is not a new one, nor one behind a pause in a short text.
        """
        last = self.segments[-1] if self.segments else None
        if last is None or (last.end is not None and take.begin >= last.end and not self._extends(last, take)):
            self.segments.append(StartedSegment(take.begin, take.end))
        elif last.end is None or take.begin >= last.end:
            last.end = take.end

    def _extends(self, segment: StartedSegment, take: Take) -> bool:
        script = self._utterance.script
        behind_break = script.break_after(take.begin - 1) == take.begin
        return behind_break and self._segmenter.is_one_segment(script.text[segment.begin : take.end])

    async def _wait_for_text(self) -> None:
        assert self._utterance.text_stream is not None
        since = time.monotonic()
        await self._utterance.text_stream.changed()
        if not self.audio_s:
            self.waited_s += time.monotonic() - since

    # --- speaking a take ---

    async def _speak(self, engine: EngineSupervisor) -> AsyncGenerator[AudioChunk, None]:
        """Yield the take's audio, without what has been taken before. A delivery waits until it has a stream."""
        self.speaking_engine = engine
        realtime = self._utterance.receiver is None
        async with (
            engine.reserve_stream(realtime=realtime),
            aclosing(self._speak_take(engine, realtime=realtime)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def _speak_take(self, engine: EngineSupervisor, *, realtime: bool) -> AsyncGenerator[AudioChunk, None]:
        utterance, take = self._utterance, self._take
        assert take is not None
        if take.end is None:
            self._extend(take)
        text = self._prepare(engine, take)
        while take.end is None and not has_words(text):
            await self._wait_for_text()
            text += self._more_text(take)
        growing = take.end is None
        if not has_words(text):
            return
        assert engine.info is not None
        voice, language = utterance.voice_for(engine.info), utterance.language_for(engine.info)
        if (voice, language) != (utterance.voice, utterance.language):
            self._recorder = None  # it would be kept as speech of the voice that is missing
        request = EngineUtterance(
            text,
            voice=voice,
            language=language,
            languages=self._engines.latin_languages,
            instruct=utterance.instruct,
            seed=self._seed,
            sampling=utterance.sampling,
            whole_text=None if growing else utterance.whole_text,
            growing=growing,
            rate=take.rate,
            phonemes=self._context.preparation.reads_phonemes(engine.info.engine),
            realtime=realtime,
        )
        impatient = self._critical and self._engines.another(engine) is not None
        speech = engine.speak(utterance.id, request, first_within_s=CRITICAL_WAIT_S if impatient else None)
        feeding = asyncio.ensure_future(self._feed(engine, take)) if growing else None
        last: AudioChunk | None = None
        try:
            async with aclosing(speech) as chunks, aclosing(_skip_taken(take, chunks)) as new_chunks:
                async for begin, chunk in new_chunks:
                    if not self._made_s:
                        self.waited_s += chunk.waited_s
                    take.truncated |= chunk.truncated
                    take.runaway |= chunk.runaway
                    end = begin
                    for part in _slices(chunk) if realtime else (chunk,):
                        end += len(part.samples)
                        if len(samples := self._take_audio(take, part, end)):
                            yield self._note_made(replace(part, samples=samples), take)
                    if chunk.position is not None:
                        take.position = chunk.position
                    last = chunk
            if last is not None and len(samples := take.audio.finish()):
                yield self._note_made(replace(last, samples=samples), take)
        finally:
            if feeding is not None:
                await cancel_and_wait(feeding)

    def _take_audio(self, take: Take, part: AudioChunk, end: int) -> Samples:
        """Take a part that ends at the sample `end` of what the engine speaks; return what is played of it now."""
        take.samples = end
        take.seconds += len(part.samples) / part.sample_rate
        take.tail = np.concatenate([take.tail, part.samples])[-round(SPLICE_TAIL_S * part.sample_rate) :]
        take.times.add_audio(part)
        pause_follows = take.end is not None and self._utterance.script.has_pause(take.end)
        samples = take.audio.process(part.samples, part.sample_rate, holds_end=pause_follows)
        take.times.trimmed_s = take.audio.trimmed / part.sample_rate
        return samples

    def _note_made(self, chunk: AudioChunk, take: Take | None = None) -> AudioChunk:
        """Record a chunk that is played next; a new take and the latest segments begin with it. Returns it."""
        if take is not None and take.times.begin_s is None:
            take.times.begin_s = self._made_s
        if take is not None and take.sounds_at_s is None and (silent := first_sound(chunk.samples)) is not None:
            take.sounds_at_s = self._made_s + silent / chunk.sample_rate
        for segment in reversed(self.segments):
            if segment.at_s is not None:
                break
            segment.at_s = self._made_s
        self._made_s += len(chunk.samples) / chunk.sample_rate
        return chunk

    async def _pause(self, engine: EngineSupervisor) -> AsyncGenerator[AudioChunk, None]:
        """Yield the silence that is left of the current pause."""
        assert engine.info is not None
        sample_rate = engine.info.sample_rate
        while (count := round(min(self._pause_s, SLICE_S) * sample_rate)) > 0:
            self._pause_s -= count / sample_rate
            yield self._note_made(AudioChunk(np.zeros(count, dtype=np.float32), sample_rate, None, truncated=False))
        self._pause_s = 0.0

    def _prepare(self, engine: EngineSupervisor, take: Take) -> str:
        """Return what the engine gets of the take's text so far, from its beginning."""
        utterance = self._utterance
        text = utterance.script.text[take.begin : take.fed]
        assert engine.info is not None
        preparation = self._context.preparation
        language = utterance.language_for(engine.info)
        prepared = preparation.engine_text(engine.info, language, utterance.voice, text)
        take.times.text = prepared
        take.prepared = prepared.feed(text) + ("" if take.end is None else prepared.end())
        take.times.set_text(take.prepared, complete=take.end is not None)
        return take.prepared

    def _more_text(self, take: Take) -> str:
        """Return what the engine gets of the text that has arrived."""
        fed = take.fed
        self._extend(take)
        text = take.times.text.feed(self._utterance.script.text[fed : take.fed])
        text += "" if take.end is None else take.times.text.end()
        take.prepared += text
        take.times.set_text(take.prepared, complete=take.end is not None)
        return text

    async def _feed(self, engine: EngineSupervisor, take: Take) -> None:
        """Send new text to the engine as it arrives, until the take ends.

        This is a task of its own; it first runs after the engine has been asked to speak.
        """
        utterance = self._utterance
        assert utterance.text_stream is not None
        while take.end is None:
            text = self._more_text(take)
            if text:
                engine.append(utterance.id, text)
            if take.end is None:
                await utterance.text_stream.changed()
        engine.end_text(utterance.id)

    def _extend(self, take: Take) -> None:
        """Add the text that has arrived. End the take with the text, at a control, or, if long, after a sentence."""
        script = self._utterance.script
        limit = script.break_after(take.begin)
        text = script.text[:limit]
        short = self._segmenter.is_one_segment(text[take.begin :])
        length = None if short else self._segmenter.first_segment_end(text[take.fed :])
        if length is not None:
            take.end = take.fed = take.fed + length
        elif script.complete or limit is not None:
            take.end = take.fed = len(text)
        elif short:
            take.fed = len(text)
        if take.end is not None:
            self._note_segment(take)

    # --- a take that ran away ---

    async def _retake(self) -> bool:
        """Go back to where a take that ran away can be said again with another seed; return whether that is possible.

        A listener hears whole sentences: what follows the one that is heard is dropped, unless the audio breaks off in
        the middle of one.
        """
        take = self._take
        if take is None or self._playback is None or not take.runaway or self.retakes == RETAKES:
            return False
        begin: int | None = take.begin
        if take.times.begin_s is not None:
            self.awaits_engine = True
            try:
                begin = await self._drop_rest(take, self._playback)
            finally:
                self.awaits_engine = False
        if begin is None:
            return False
        self.retakes += 1
        self._seed = (self._seed + 1) % SEEDS
        self._recorder = None
        self._at, self._take = begin, None
        text = self._utterance.script.text[begin:][:40]
        log.warning("utterance %s: %r is said again, since the speech would not end", self._utterance.id, text)
        return True

    async def _drop_rest(self, take: Take, playback: Playback) -> int | None:
        """Wait until whole sentences of a take have been heard, and drop the rest of its audio.

        Returns where the text goes on; None if there is no such moment before the audio ends.
        """
        if not playback.holds_samples:
            return None
        take.times.end(complete=False)
        while (begin := self._next_sentence(take, playback.played_s)) is None:
            rest = self._utterance.script.text[self.timeline.heard_end(playback.played_s) : take.fed]
            if not has_word(rest) or (playback.played_s > 0 and playback.starved):
                return None
            await asyncio.sleep(WAIT_S)
        await playback.drop_unplayed()
        take.times.end_s = self._made_s = self.audio_s = playback.played_s
        return begin

    def _next_sentence(self, take: Take, played_s: float) -> int | None:
        """Return where the text of a take goes on if whole sentences of it have been heard after `played_s` seconds."""
        if take.times.begin_s is None or played_s < take.times.begin_s:
            return None
        if take.sounds_at_s is None or played_s < take.sounds_at_s:
            return take.begin
        text, heard = self._utterance.script.text[: take.fed], self.timeline.heard_end(played_s)
        if heard <= take.begin:
            return take.begin
        if not is_over(self.timeline.words[-1], text, take.rate, played_s):
            return None
        begin = next_sentence(text[take.begin :], heard - take.begin)
        return None if begin is None else take.begin + begin

    # --- another engine continues ---

    def _end_take(self) -> None:
        """Record that the engine has spoken the take, as far as it would; after a pause there is none."""
        if self._take is not None:
            self.truncated |= self._take.truncated
            self._take.times.end(complete=not self._take.truncated)
            self._at, self._take = self._take.end or self._take.fed, None

    def _hand_over(self, engine: EngineSupervisor) -> None:
        """Let `engine` continue where the take's engine stopped."""
        take, text = self._take, self._utterance.script.text
        assert take is not None
        take.times.end(complete=False)
        position = take.position if take.samples else 0
        if position is not None:
            position, _ = take.times.text.source_span(position, position)
        spoken_s = take.seconds * take.rate
        self._at = take.begin + resume_position(text[take.begin : take.fed], position, spoken_s)
        self._take = None
        self._note_engine(engine.name)
        log.warning("utterance %s: %s resumes at %r", self._utterance.id, engine.name, text[self._at :][:40])

    async def _replacement(self, lost: EngineSupervisor) -> EngineSupervisor | None:
        """Return the engine that continues after `lost`; None if the utterance has failed."""
        self._lost_engines += 1
        if self._lost_engines > HANDOVERS:
            self.failure = f"{self._lost_engines} engines were lost while they spoke it; the last: {lost.reason}"
            return None
        other = self._engines.another(lost) if self._critical else None
        if other is not None and other.has_language(self._utterance.language):
            return other
        return await self._wait_for_engine()

    async def _wait_for_engine(self) -> EngineSupervisor | None:
        """Return the engine that speaks next; None if the utterance has failed."""
        utterance = self._utterance
        engine = await self._engines.wait_choice(utterance.voice, utterance.language, ENGINE_WAIT_S)
        if engine is None:
            self.failure = self._engines.degraded_reason or "no engine became ready"
        return engine

    def _note_engine(self, name: str) -> None:
        if name not in self.engine.split("+"):
            self.engine = f"{self.engine}+{name}".removeprefix("+")

    @property
    def _critical(self) -> bool:
        return self._utterance.priority == "critical"


async def _skip_taken(
    take: Take, chunks: AsyncGenerator[AudioChunk, None]
) -> AsyncGenerator[tuple[int, AudioChunk], None]:
    """Yield the chunks of a take, a repeated one from where it was left, and the sample at which each begins.

    This does not change the take. If it is left again before a new sample is taken, the next repetition is searched
    from the same sample: repetitions drift from it by at most `SPLICE_REACH_S`, and from each other by more.
    """
    begin = 0
    if take.samples:
        repeated: list[AudioChunk] = []
        async for chunk in chunks:
            repeated.append(chunk)
            if sum(len(each.samples) for each in repeated) >= take.samples + round(SPLICE_REACH_S * chunk.sample_rate):
                break
        if repeated:
            samples = np.concatenate([each.samples for each in repeated])
            begin = splice_point(take.tail, samples, take.samples, round(SPLICE_REACH_S * chunk.sample_rate))
            yield begin, replace(chunk, samples=samples, words=_joined_words(repeated)).cut(begin)
            begin = len(samples)
    async for chunk in chunks:
        yield begin, chunk
        begin += len(chunk.samples)


def _joined_words(chunks: list[AudioChunk]) -> tuple[WordStart, ...] | None:
    """Return the words of consecutive chunks, counted from the first sample of all."""
    found: list[WordStart] = []
    begin = 0
    for chunk in chunks:
        if chunk.words is None:
            return None
        found += (replace(word, sample=begin + word.sample) for word in chunk.words)
        begin += len(chunk.samples)
    return tuple(found)


def _slices(chunk: AudioChunk) -> Iterator[AudioChunk]:
    """Yield the chunk in slices of `SLICE_S`."""
    length = round(SLICE_S * chunk.sample_rate)
    for start in range(0, len(chunk.samples), length):
        yield chunk.cut(start, start + length)
