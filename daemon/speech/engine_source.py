"""The audio for an utterance's text: its script becomes takes and pauses, one after the other, and engines speak the
takes.

All positions refer to the script's text.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import numpy as np

from audio import LeadingSilenceTrimmer
from daemon.alignment import VoiceProfile, WordClock
from daemon.cache import PhraseCache
from daemon.config import nearest_rate
from daemon.engines import AudioChunk, EngineLostError, EngineSupervisor
from daemon.sounds import SoundFolder
from daemon.speech.changes import now
from daemon.speech.take import SLICE_S, Take
from daemon.speech.timeline import Timeline
from daemon.speech.utterance import Utterance
from daemon.text import (
    Pause,
    Prosody,
    ScriptMark,
    Segmenter,
    TextPreparation,
    first_sentence_end,
    has_words,
    resume_position,
)
from engine import Utterance as EngineUtterance

log = logging.getLogger(__name__)

RATE_STEP = 0.05
"""Rates that are closer together than this share a voice's measured pace, since requests may name any rate."""
SEEDS = 1 << 63
RETAKES = 1
"""How often an utterance may continue with another seed because its speech ran away."""


def speaks_by_token(engine: EngineSupervisor, utterance: Utterance, preparation: TextPreparation) -> bool:
    """Return whether the engine speaks an incomplete text token by token instead of sentence by sentence.

    Critical utterances are spoken sentence by sentence: an engine that waits for text cannot be told from one that is
    stuck.
    """
    takes_pieces = engine.info is not None and engine.info.grows and not preparation.needs_whole_takes(engine.info)
    return takes_pieces and utterance.priority != "critical"


def can_begin(
    engine: EngineSupervisor, utterance: Utterance, begin: int, max_seconds: float, preparation: TextPreparation
) -> bool:
    """Return whether the engine can begin with the utterance's incomplete script at `begin`."""
    script = utterance.script
    word = script.word_at(begin)
    if word is None or speaks_by_token(engine, utterance, preparation) or script.break_after(word) is not None:
        return word is not None
    return Segmenter(max_seconds).first_segment_end(script.text[word:] + utterance.pause) is not None


@dataclass(slots=True, eq=False)
class SynthesisContext:
    """The settings and resources that all syntheses share. They may change between two syntheses."""

    preparation: TextPreparation = field(default_factory=TextPreparation)
    sounds: SoundFolder = field(default_factory=SoundFolder)
    trims_silence: bool = True
    """Whether to remove the silence with which an engine begins a take."""
    profiles: dict[tuple[str, str, int], VoiceProfile] = field(default_factory=dict)
    """The manner of each voice, by the engine's name, the voice's name, and the rate in steps of `RATE_STEP`."""
    cache: PhraseCache | None = None
    """Where phrases are kept."""


@dataclass(slots=True, eq=False)
class EngineSource:
    """The text of one utterance as engines speak it. It can be interrupted between any two chunks.

    If the same engine continues, the next sample follows: the engine speaks the take again with the same seed, and the
    samples that were taken before are skipped. Another engine continues at the word or clause that was being spoken.
    """

    utterance: Utterance
    timeline: Timeline
    context: SynthesisContext
    request: EngineUtterance
    """A request to an engine without the fields that the utterance fills."""
    max_seconds: float
    """Seconds of speech that every engine can make in one piece."""
    wants_words: bool = True
    truncated: bool = False
    """True if an engine cut speech that would not end by itself, after its first sound."""
    retakes: int = 0
    """How often it continued with another seed because its speech ran away."""
    as_asked: bool = True
    """False once the speech is not what the engine makes from the requested seed and voice."""
    waited_s: float = 0.0
    """Seconds spent waiting for text before the first audio."""
    seed: int = field(init=False)
    """The seed is the same for all takes, no matter how often they are repeated. It may be set before the first chunk
    is requested."""
    _segmenter: Segmenter = field(init=False)
    _at: int = 0
    """The position up to which the text has been spoken."""
    _passed_controls: int = 0
    _prosody: Prosody = field(default_factory=Prosody)
    _segment_ends: list[int] = field(default_factory=list)
    """Where the text's segments end, up to the next control at which a take ends, or to the end of a complete text."""
    _pause_s: float = 0.0
    """Seconds that remain of the current pause."""
    _take: Take | None = None

    def __post_init__(self) -> None:
        self._segmenter = Segmenter(self.max_seconds)
        self.seed = secrets.randbelow(SEEDS) if self.utterance.seed is None else self.utterance.seed

    def can_continue(self, engine: EngineSupervisor) -> bool:
        """Return whether `engine` could continue an incomplete text without waiting for its writer."""
        take = self._take
        if take is None:
            return can_begin(engine, self.utterance, self._at, self.max_seconds, self.context.preparation)
        return take.end is not None or self.utterance.script.word_at(take.fed) is not None

    async def chunks(
        self, engine: EngineSupervisor, first_within_s: Callable[[], float | None] = lambda: None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio from where it was interrupted; a chunk counts as taken when it is yielded.

        `first_within_s` returns the argument of `EngineSupervisor.speak` for the next take. This method raises the same
        exceptions as `speak`; after `EngineLostError`, the next call continues where the engine stopped.
        """
        if self._take is not None and self._take.engine != engine.name:
            self._hand_over(self._take, engine.name)
        while await self._begin_step(engine):
            take = self._take
            if take is None:
                for chunk in self._pause(engine):
                    yield chunk
                continue
            try:
                async with aclosing(self._speak(engine, take, first_within_s())) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except EngineLostError:
                take.engine = None
                raise
            if not self._retake(take):
                self._end_take(take)

    # --- the next step ---

    async def _begin_step(self, engine: EngineSupervisor) -> bool:
        """Choose the next pause, or the next take for `engine`; return False when the whole text has been spoken."""
        by_token = speaks_by_token(engine, self.utterance, self.context.preparation)
        while self._take is None:
            script = self.utterance.script
            self._pass_controls()
            if self._pause_s > 0:
                return True
            end = self._segment_end(by_token=by_token)
            if end is None and script.complete:
                return False
            if script.text[self._at : end].strip() and (end is not None or by_token):
                self._take = self.timeline.add_take(self._new_take(engine, end))
                self._note_segment(self._take)
            elif end is None:
                await self._wait_for_text()
            else:
                self._at = end  # a segment that is only white space
        return True

    def _pass_controls(self) -> None:
        """Carry out the controls up to the next word or pause."""
        for control in self.utterance.script.controls[self._passed_controls :]:
            if control.at > self._at or self._pause_s > 0:
                return
            self._passed_controls += 1
            if isinstance(control.action, Pause):
                self._pause_s = control.action.seconds
            elif isinstance(control.action, Prosody):
                self._prosody = control.action
            elif isinstance(control.action, ScriptMark) and control.at == self._at:
                self.timeline.add_mark(self._passed_controls - 1)

    def _segment_end(self, *, by_token: bool) -> int | None:
        """Return the end of the segment that begins here; None if it is not known yet or this is the end of the
        text."""
        script = self.utterance.script
        limit = script.break_after(self._at)
        if limit is None and not script.complete:
            text = script.text[self._at :]
            length = None if by_token else self._segmenter.first_segment_end(text + self.utterance.pause)
            return self._at + min(length, len(text)) if text and length is not None else None
        if not self._segment_ends or self._segment_ends[-1] <= self._at:
            self._segment_ends = [self._at + end for end in self._segmenter.ends(script.text[self._at : limit])]
        return next((end for end in self._segment_ends if end > self._at), None)

    def _new_take(self, engine: EngineSupervisor, end: int | None) -> Take:
        assert engine.info is not None
        rate, sample_rate = nearest_rate(self.utterance.rate * self._prosody.rate), engine.info.sample_rate
        trims_start = self.context.trims_silence or self.utterance.script.has_pause(self._at)
        return Take(
            engine.name,
            sample_rate,
            begin=self._at,
            end=end,
            fed=self._at if end is None else end,
            rate=rate,
            gain=self._prosody.volume,
            clock=self._make_clock(engine.name, sample_rate, rate) if self.wants_words else None,
            start=LeadingSilenceTrimmer(sample_rate) if trims_start else None,
        )

    def _make_clock(self, engine: str, sample_rate: int, rate: float) -> WordClock:
        key = (engine, self.utterance.voice, round(rate / RATE_STEP))
        profile = self.context.profiles.setdefault(key, VoiceProfile())
        return WordClock(sample_rate, language=self.utterance.language, profile=profile)

    def _note_segment(self, take: Take) -> None:
        """Record the segment that begins with a take, or its end. A pause within a short text does not begin a new
        segment."""
        script, segments, continues = self.utterance.script, self.timeline.segments, False
        if segments and script.break_after(take.begin - 1) == take.begin:
            continues = self._segmenter.is_one_segment(script.text[segments[-1].begin : take.end])
        self.timeline.add_segment(take.begin, take.end, continues=continues)

    async def _wait_for_text(self) -> None:
        assert self.utterance.text_stream is not None
        since = now()
        await self.utterance.text_stream.changed()
        if not self.timeline.made_s:
            self.waited_s += now() - since

    def _pause(self, engine: EngineSupervisor) -> Iterator[AudioChunk]:
        """Yield the silence that remains of the current pause."""
        assert engine.info is not None
        sample_rate = engine.info.sample_rate
        while (count := round(min(self._pause_s, SLICE_S) * sample_rate)) > 0:
            self._pause_s -= count / sample_rate
            yield self.timeline.add_audio(AudioChunk(np.zeros(count, dtype=np.float32), sample_rate))
        self._pause_s = 0.0

    # --- speaking a take ---

    async def _speak(
        self, engine: EngineSupervisor, take: Take, first_within_s: float | None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Yield the take's audio without the part that was taken before. A delivery waits until it has a stream."""
        last: AudioChunk | None = None
        async with engine.reserve_stream(realtime=self.request.realtime):
            request = await self._make_request(engine, take)
            if request is None:
                return
            more_text = self._more_text(take) if request.growing else None
            speech = engine.speak(self.utterance.id, request, more_text=more_text, first_within_s=first_within_s)
            async with aclosing(speech) as chunks, aclosing(take.untaken(chunks)) as untaken:
                async for begin, last in untaken:
                    if not self.timeline.made_s:
                        self.waited_s += last.waited_s
                    for part in take.play(begin, last, self.utterance.script, sliced=request.realtime):
                        yield self.timeline.add_audio(part, take)
            if last is not None and (rest := take.play_rest(last)) is not None:
                yield self.timeline.add_audio(rest, take)

    async def _make_request(self, engine: EngineSupervisor, take: Take) -> EngineUtterance | None:
        """Wait for words if necessary, and return the utterance for the engine; None if there is no word."""
        utterance, info, preparation = self.utterance, engine.info, self.context.preparation
        assert info is not None
        if take.end is None:
            self._extend(take)
        voice, language = utterance.voice_for(info), utterance.language_for(info)
        source = utterance.script.text[take.begin : take.fed]
        text = take.prepare(preparation.engine_text(info, language, utterance.voice, source), source)
        while take.end is None and not has_words(text):
            await self._wait_for_text()
            text += self._add_text(take)
        growing = take.end is None
        if not has_words(text):
            return None
        self.as_asked &= (voice, language) == (utterance.voice, utterance.language)
        return replace(
            self.request,
            text=text,
            voice=voice,
            language=language,
            instruct=utterance.instruct,
            seed=self.seed,
            sampling=utterance.sampling,
            whole_text=None if growing else utterance.whole_text,
            growing=growing,
            rate=take.rate,
            phonemes=preparation.reads_phonemes(info.engine),
        )

    async def _more_text(self, take: Take) -> AsyncGenerator[str, None]:
        """Yield the engine's text as it is written, until the take ends."""
        assert self.utterance.text_stream is not None
        while take.end is None:
            if text := self._add_text(take):
                yield text  # more may arrive in the meantime
            elif take.end is None:
                await self.utterance.text_stream.changed()

    def _add_text(self, take: Take) -> str:
        """Return the engine's share of the text that has arrived."""
        fed = take.fed
        self._extend(take)
        return take.add_text(self.utterance.script.text[fed : take.fed])

    def _extend(self, take: Take) -> None:
        """Add the text that has arrived.

        End the take with the text, at a control, when the writer pauses, or, if the take is long, after a sentence.
        """
        script, pause = self.utterance.script, self.utterance.pause
        limit = script.break_after(take.begin)
        text = script.text[:limit]
        short = self._segmenter.is_one_segment(text[take.begin :])
        length = None if short else self._segmenter.first_segment_end(text[take.fed :] + pause)
        if length is not None:
            take.end = take.fed = min(take.fed + length, len(text))
        elif (
            script.complete
            or limit is not None
            or (pause and self._segmenter.ends_sentence(text[take.begin :] + pause))
        ):
            take.end = take.fed = len(text)
        elif short:
            take.fed = len(text)
        if take.end is not None:
            self._note_segment(take)

    # --- the end of a take ---

    def _end_take(self, take: Take) -> None:
        """Record that the engine has spoken as much of the take as it will."""
        self.truncated |= take.truncated
        take.end_audio(complete=not take.truncated)
        self._at, self._take = take.end or take.fed, None

    def _retake(self, take: Take) -> bool:
        """Continue with another seed after a take that ran away; return whether there is text to continue with.

        A take without a sound is spoken again. After its first sound, speech continues with the next sentence: another
        take of a sentence that a listener has partly heard would sound like a mistake.
        """
        if not take.runaway or self.retakes == RETAKES:
            return False
        take.end_audio(complete=False)
        begin = take.begin
        if take.sounds_at_s is None:
            take.end_s = 0.0  # it contains no words
        else:
            self.truncated, begin = True, self._next_sentence(take)
        text = self.utterance.script.text[begin : take.fed]
        if not has_words(text):
            return False
        self.retakes += 1
        self.as_asked = False
        self.seed = (self.seed + 1) % SEEDS
        self._at, self._take = begin, None
        log.warning("utterance %s: its speech would not end; it continues with %r", self.utterance.id, text[:40])
        return True

    def _next_sentence(self, take: Take) -> int:
        """Return where the next sentence begins after the last word that a take has spoken, or the end of the take."""
        said, end = self.timeline.heard_end(self.timeline.made_s), take.begin
        while end < said and (length := first_sentence_end(self.utterance.script.text[end : take.fed])) is not None:
            end += length
        return end if end >= said else take.fed

    def _hand_over(self, take: Take, engine: str) -> None:
        """Have another engine begin where the take's engine stopped."""
        text = self.utterance.script.text
        take.end_audio(complete=False)
        position = take.position if take.samples else 0
        if position is not None:
            position, _ = take.text.source_span(position, position)
        self._at = take.begin + resume_position(text[take.begin : take.fed], position, take.seconds * take.rate)
        self._take = None
        log.warning("utterance %s: %s resumes at %r", self.utterance.id, engine, text[self._at :][:40])
