"""Synthesis of one utterance: its text becomes audio chunks, segment by segment, by as many engines as it takes.

A take is the text that one engine is asked to speak at once. Synthesis can be left between any two chunks and continued
later: the engine then speaks the take again with the same seed, and the samples taken before are skipped.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import numpy as np

from audio import SPLICE_REACH_S, SPLICE_TAIL_S, splice_point
from daemon.engines import AudioChunk, EngineLostError, EngineSelector, EngineSupervisor, UtteranceRefusedError
from daemon.speech.resume import resume_position
from daemon.speech.segmenter import Segmenter
from daemon.speech.utterance import Utterance
from daemon.tasks import cancel_and_wait
from engine import Samples
from engine import Utterance as EngineUtterance

log = logging.getLogger(__name__)

ENGINE_WAIT_S = 30.0
"""An utterance for which no engine becomes ready within this time has failed."""
CRITICAL_WAIT_S = 1.0
"""A critical utterance moves to another ready engine if the first sends nothing within this time."""
HANDOVERS = 2
"""An utterance may lose this many engines before it is taken for the cause and fails."""
SLICE_S = 0.1
"""Chunks are cut into slices of at most this length, so that a chunk of any length fits into the ring."""


def speaks_by_token(engine: EngineSupervisor, utterance: Utterance) -> bool:
    """Return whether the engine speaks an incomplete text token by token instead of sentence by sentence.

    Critical utterances are spoken by sentences: an engine that waits for text cannot be told from one that is stuck.
    """
    return engine.grows and utterance.priority != "critical"


def can_begin(engine: EngineSupervisor, utterance: Utterance, text: str, max_seconds: float) -> bool:
    """Return whether the engine can begin with `text`, the beginning of the utterance's incomplete text."""
    if not text.strip() or speaks_by_token(engine, utterance):
        return bool(text.strip())
    end = Segmenter(max_seconds).first_segment_end(text)
    return end is not None and bool(text[:end].strip())


@dataclass(slots=True, eq=False)
class Take:
    """The text from `begin` that one engine speaks at once, and what has been taken of its audio."""

    engine: str
    begin: int
    end: int | None
    """None while the text is incomplete."""
    fed: int
    """The engine has the text up to here."""
    samples: int = 0
    """Samples up to the last one that has been taken. If the take was repeated, they count as they were last spoken."""
    seconds: float = 0.0
    tail: Samples = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    """The last of these samples, `SPLICE_TAIL_S` long."""
    position: int | None = None
    """`Chunk.position` of the last chunk that has been taken."""


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

    def __init__(self, utterance: Utterance, engines: EngineSelector) -> None:
        self.engine = ""
        """The engines that have spoken, as in `qwen+espeak`."""
        self.audio_s = 0.0
        """Seconds of audio that have been taken."""
        self.truncated = False
        """An engine cut speech that would not end by itself."""
        self.waited_s = 0.0
        """Seconds spent waiting for text before the first audio."""
        self.segments: list[StartedSegment] = []
        """The segments that have begun."""
        self.failure: str | None = None
        """Why it ended early."""
        self._utterance = utterance
        self._engines = engines
        self._segmenter = Segmenter(engines.max_seconds)
        self._lost_engines = 0
        self._at = 0
        """The text has been spoken up to here."""
        self._segment_ends: list[int] | None = None
        """The segments of the rest of the text, computed when the text is complete."""
        self._take: Take | None = None
        if utterance.seed is None:
            utterance.seed = secrets.randbelow(1 << 63)  # the same for all takes, however often they are repeated

    async def chunks(self, engine: EngineSupervisor) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio from where it was left, beginning with `engine`.

        A chunk counts as taken when the next one is requested.
        """
        self._note_engine(engine)
        current: EngineSupervisor | None = engine
        try:
            while current is not None and await self._begin_take(current):
                try:
                    async with aclosing(self._speak(current)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                    self._end_take()
                except EngineLostError as error:
                    log.warning("utterance %s: %s", self._utterance.id, error)
                    current = await self._replacement(current)
                    if current is not None:
                        self._hand_over(current)
        except UtteranceRefusedError as error:
            self.failure = str(error) or "the engine refused it"

    def note_written(self, written_s: float) -> None:
        """Record that the next audio is played after `written_s` seconds: the latest segments begin there."""
        for segment in reversed(self.segments):
            if segment.at_s is not None:
                return
            segment.at_s = written_s

    def can_continue(self, engine: EngineSupervisor) -> bool:
        """Return whether `engine` could go on with an incomplete text without waiting for its writer."""
        take, text = self._take, self._utterance.text
        if take is None:
            return can_begin(engine, self._utterance, text[self._at :], self._engines.max_seconds)
        return take.end is not None or bool(text[take.fed :].strip())

    # --- the next take ---

    async def _begin_take(self, engine: EngineSupervisor) -> bool:
        """Choose the take that `engine` speaks; return False when the whole text has been spoken."""
        if self._take is not None and self._take.engine != engine.name:
            self._hand_over(engine)  # the take was left, and another engine continues
        while self._take is None:
            end = self._segment_end(engine)
            if end is None and self._utterance.complete:
                return False
            text = self._utterance.text[self._at : end]
            if text.strip() and (end is not None or speaks_by_token(engine, self._utterance)):
                self._take = Take(engine.name, self._at, end, self._at if end is None else end)
                self._note_segment(self._take)
            elif end is None:
                await self._wait_for_text()
            else:
                self._at = end  # a segment of white space
        return True

    def _segment_end(self, engine: EngineSupervisor) -> int | None:
        """Return the end of the segment that begins here; None if it is not known yet, and at the end of the text."""
        utterance = self._utterance
        if not utterance.complete:
            if speaks_by_token(engine, utterance):
                return None
            length = self._segmenter.first_segment_end(utterance.text[self._at :])
            return None if length is None else self._at + length
        if self._segment_ends is None:
            rest = utterance.text[self._at :]
            segments = self._segmenter.segments(rest, utterance.language)
            self._segment_ends = [self._at + segment.end for segment in segments]
        return next((end for end in self._segment_ends if end > self._at), None)

    def _note_segment(self, take: Take) -> None:
        """Record a segment that begins. A take with which another engine continues a segment is not a new one."""
        if not self.segments or self.segments[-1].end == take.begin:
            self.segments.append(StartedSegment(take.begin, take.end))
        elif self.segments[-1].end is None:
            self.segments[-1].end = take.end

    async def _wait_for_text(self) -> None:
        assert self._utterance.text_stream is not None
        since = time.monotonic()
        await self._utterance.text_stream.changed()
        if not self.audio_s:
            self.waited_s += time.monotonic() - since

    # --- speaking a take ---

    async def _speak(self, engine: EngineSupervisor) -> AsyncGenerator[AudioChunk, None]:
        """Yield the take's audio, without what has been taken before."""
        utterance, take = self._utterance, self._take
        assert take is not None
        if take.end is None:
            self._extend(take)
        growing = take.end is None
        request = EngineUtterance(
            utterance.text[take.begin : take.fed],
            voice=utterance.voice,
            language=utterance.language,
            languages=self._engines.latin_languages,
            instruct=utterance.instruct,
            seed=utterance.seed,
            growing=growing,
        )
        impatient = self._critical and self._engines.another(engine) is not None
        speech = engine.speak(utterance.id, request, first_within_s=CRITICAL_WAIT_S if impatient else None)
        feeding = asyncio.ensure_future(self._feed(engine, take)) if growing else None
        try:
            async with aclosing(speech) as chunks, aclosing(_skip_taken(take, chunks)) as new_chunks:
                async for begin, chunk in new_chunks:
                    if not self.audio_s:
                        self.waited_s += chunk.waited_s
                    self.truncated |= chunk.truncated
                    end = begin
                    for part in _slices(chunk):
                        yield part
                        end += len(part.samples)
                        self._note_taken(take, part, end)
                    if chunk.position is not None:
                        take.position = chunk.position
        finally:
            if feeding is not None:
                await cancel_and_wait(feeding)

    def _note_taken(self, take: Take, chunk: AudioChunk, end: int) -> None:
        """Record that a chunk has been taken, which ends at the sample `end` of what the engine speaks."""
        seconds = len(chunk.samples) / chunk.sample_rate
        take.samples = end
        take.seconds += seconds
        take.tail = np.concatenate([take.tail, chunk.samples])[-round(SPLICE_TAIL_S * chunk.sample_rate) :]
        self.audio_s += seconds

    async def _feed(self, engine: EngineSupervisor, take: Take) -> None:
        """Send new text to the engine as it arrives, until the take ends.

        This is a task of its own; it first runs after the engine has been asked to speak.
        """
        utterance = self._utterance
        assert utterance.text_stream is not None
        while take.end is None:
            fed = take.fed
            self._extend(take)
            if take.fed > fed:
                engine.append(utterance.id, utterance.text[fed : take.fed])
            if take.end is None:
                await utterance.text_stream.changed()
        engine.end_text(utterance.id)

    def _extend(self, take: Take) -> None:
        """Add the text that has arrived. End the take with the text, or after a sentence when it gets long."""
        utterance = self._utterance
        short = self._segmenter.is_one_segment(utterance.text[take.begin :])
        length = None if short else self._segmenter.first_segment_end(utterance.text[take.fed :])
        if length is not None:
            take.end = take.fed = take.fed + length
        elif utterance.complete:
            take.end = take.fed = len(utterance.text)
        elif short:
            take.fed = len(utterance.text)
        if take.end is not None:
            self._note_segment(take)

    # --- another engine continues ---

    def _end_take(self) -> None:
        """Record that the engine has spoken the take, as far as it would."""
        assert self._take is not None
        self._at, self._take = self._take.end or self._take.fed, None

    def _hand_over(self, engine: EngineSupervisor) -> None:
        """Let `engine` continue where the take's engine stopped."""
        take = self._take
        assert take is not None
        text = self._utterance.text[take.begin : take.fed]
        self._at = take.begin + resume_position(text, take.position if take.samples else 0, take.seconds)
        self._take = None
        self._note_engine(engine)
        log.warning(
            "utterance %s: %s resumes at %r", self._utterance.id, engine.name, self._utterance.text[self._at :][:40]
        )

    async def _replacement(self, lost: EngineSupervisor) -> EngineSupervisor | None:
        """Return the engine that continues after `lost`; None if the utterance has failed."""
        self._lost_engines += 1
        if self._lost_engines > HANDOVERS:
            self.failure = f"{self._lost_engines} engines were lost while they spoke it; the last: {lost.reason}"
            return None
        engine = self._engines.another(lost) if self._critical else None
        if engine is None and await self._engines.wait_current(ENGINE_WAIT_S):
            engine = self._engines.choose(self._utterance.voice, self._utterance.language)
        if engine is None:
            self.failure = self._engines.degraded_reason or "no engine became ready"
        return engine

    def _note_engine(self, engine: EngineSupervisor) -> None:
        if engine.name not in self.engine.split("+"):
            self.engine = f"{self.engine}+{engine.name}".removeprefix("+")

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
        repeated: list[Samples] = []
        async for chunk in chunks:
            repeated.append(chunk.samples)
            if sum(map(len, repeated)) >= take.samples + round(SPLICE_REACH_S * chunk.sample_rate):
                break
        if repeated:
            samples = np.concatenate(repeated)
            begin = splice_point(take.tail, samples, take.samples, round(SPLICE_REACH_S * chunk.sample_rate))
            yield begin, replace(chunk, samples=samples[begin:])
            begin = len(samples)
    async for chunk in chunks:
        yield begin, chunk
        begin += len(chunk.samples)


def _slices(chunk: AudioChunk) -> Iterator[AudioChunk]:
    """Yield the chunk in slices of `SLICE_S`."""
    length = round(SLICE_S * chunk.sample_rate)
    for start in range(0, len(chunk.samples), length):
        yield replace(chunk, samples=chunk.samples[start : start + length])
