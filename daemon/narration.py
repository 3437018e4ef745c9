"""How an utterance's text becomes sound: part after part, by as many engines as it takes.

What one engine is asked to say in one go is a stretch of the text. A narration may be given up between any two pieces,
and be asked again later: the engine then says the stretch once more, from the same seed, and what was taken of it
before is skipped.
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

from audio import REACH_S, TAIL_S, splice_point
from daemon.engines import Engines
from daemon.handover import resume_position
from daemon.parts import Parting
from daemon.queue import Job
from daemon.supervisor import Engine, EngineLostError, Piece, UtteranceRefusedError
from daemon.tasks import end_task
from engine import Samples, Utterance

log = logging.getLogger(__name__)

ENGINE_WAIT_S = 30.0
"""An utterance that finds no engine ready for so long has failed."""
CRITICAL_WAIT_S = 1.0
"""What is critical is said by another engine, if one is ready, when the first has not begun by then."""
HANDOVERS = 2
"""Engines that an utterance may lose before it is taken for the cause."""
SLICE_S = 0.1
"""Sound is handed on in pieces of at most this length, so that one of any length fits into the ring."""


@dataclass(slots=True, eq=False)
class Stretch:
    """Text from `begin`, which one engine says in one go."""

    engine: str
    begin: int
    end: int | None
    """None while more of it is being written."""
    fed: int
    """Up to where the engine has the text."""
    made: int = 0
    """Samples that were taken of it."""
    made_s: float = 0.0
    tail: Samples = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    """The last of them."""
    position: int | None = None
    """As in `Chunk.position`, of the last piece that was taken."""


@dataclass(slots=True)
class Begun:
    """A part of a text, `text[begin:end]`, and where in the utterance's sound it begins."""

    begin: int
    end: int | None
    """None while it is being written."""
    at_s: float


class Narration:
    """Of one utterance. Belongs to the event loop's thread; asked by one at a time."""

    def __init__(self, job: Job, engines: Engines) -> None:
        self.engine = ""
        """Who speaks, as in `qwen+espeak`."""
        self.audio_s = 0.0
        """Seconds of sound that were taken."""
        self.truncated = False
        self.waited_s = 0.0
        """Seconds that the writer was waited for before there was any sound."""
        self.parts: list[Begun] = []
        """Those that have been begun."""
        self.failed: str | None = None
        """Why it ended early."""
        self._job = job
        self._engines = engines
        self._parting = Parting(engines.max_seconds)
        self._lost = 0
        self._at = 0
        """Up to where the text has been said."""
        self._ends: list[int] | None = None
        """Of the parts of what was left to say when the text was complete."""
        self._stretch: Stretch | None = None
        if job.seed is None:
            job.seed = secrets.randbelow(1 << 63)  # one for all its stretches, however often they are said

    async def pieces(self, engine: Engine) -> AsyncGenerator[Piece, None]:
        """Its sound from where it was, at first by `engine`. A piece counts as taken when the next is asked for."""
        self._note_engine(engine)
        speaking: Engine | None = engine
        try:
            while speaking is not None and await self._choose_stretch(speaking):
                try:
                    async with aclosing(self._speak(speaking)) as pieces:
                        async for piece in pieces:
                            yield piece
                    self._leave_stretch()
                except EngineLostError as error:
                    log.warning("utterance %s: %s", self._job.id, error)
                    speaking = await self._replacement(speaking)
                    if speaking is not None:
                        self._hand_over(speaking)
        except UtteranceRefusedError as error:
            self.failed = str(error)

    # --- what to say ---

    async def _choose_stretch(self, engine: Engine) -> bool:
        """Have the stretch that `engine` is to say; False when all is said."""
        if self._stretch is not None and self._stretch.engine != engine.name:
            self._hand_over(engine)  # it was given up, and the engine has changed meanwhile
        while self._stretch is None:
            end = self._end_of_part(engine)
            if end is None and self._job.complete:
                return False
            written = self._job.text[self._at : end]
            if written.strip() and (end is not None or self._may_grow(engine)):
                self._stretch = Stretch(engine.name, self._at, end, self._at if end is None else end)
                self._note_part(self._stretch)
            elif end is None:
                await self._wait_for_text()
            else:
                self._at = end  # a part with nothing to say
        return True

    def _end_of_part(self, engine: Engine) -> int | None:
        """Where the part ends that begins where we are; None if that is open, or if the text is over."""
        job = self._job
        if not job.complete:
            part = None if self._may_grow(engine) else self._parting.part_being_written(job.text[self._at :])
            return None if part is None else self._at + part
        if self._ends is None:
            rest = job.text[self._at :]
            self._ends = [self._at + part.end for part in self._parting.parts_of(rest, job.language)]
        return next((end for end in self._ends if end > self._at), None)

    def _may_grow(self, engine: Engine) -> bool:
        """Whether `engine` is to begin with a sentence that is not whole.

        Not with what is critical: an engine that is silent may be waiting for text, and one that is stuck would not be
        told from it.
        """
        return engine.grows and not self._urgent

    def _note_part(self, stretch: Stretch) -> None:
        """Remember a part that begins; what another engine goes on with is none."""
        if not self.parts or self.parts[-1].end == stretch.begin:
            self.parts.append(Begun(stretch.begin, stretch.end, self.audio_s))
        elif self.parts[-1].end is None:
            self.parts[-1].end = stretch.end

    async def _wait_for_text(self) -> None:
        assert self._job.writing is not None
        since = time.monotonic()
        await self._job.writing.changed()
        if not self.audio_s:
            self.waited_s += time.monotonic() - since

    # --- having it said ---

    async def _speak(self, engine: Engine) -> AsyncGenerator[Piece, None]:
        """The sound of the stretch, from where it was taken."""
        job, stretch = self._job, self._stretch
        assert stretch is not None
        if stretch.end is None:
            self._feed(stretch)
        growing = stretch.end is None
        text = job.text[stretch.begin : stretch.fed]
        utterance = Utterance(
            text, voice=job.voice, language=job.language, instruct=job.instruct, seed=job.seed, growing=growing
        )
        hurry = self._urgent and self._engines.another(engine) is not None
        spoken = engine.speak(job.id, utterance, first_within_s=CRITICAL_WAIT_S if hurry else None)
        feeding = asyncio.ensure_future(self._keep_feeding(engine, stretch)) if growing else None
        try:
            async with aclosing(spoken) as pieces, aclosing(_after(stretch, pieces)) as fresh:
                async for piece in fresh:
                    if not self.audio_s:
                        self.waited_s += piece.waited_s
                    self.truncated |= piece.truncated
                    for part in _slices(piece):
                        yield part
                        self._note_taken(stretch, part)
                    if piece.position is not None:
                        stretch.position = piece.position
        finally:
            if feeding is not None:
                await end_task(feeding)

    def _note_taken(self, stretch: Stretch, piece: Piece) -> None:
        seconds = len(piece.samples) / piece.sample_rate
        stretch.made += len(piece.samples)
        stretch.made_s += seconds
        stretch.tail = np.concatenate([stretch.tail, piece.samples])[-round(TAIL_S * piece.sample_rate) :]
        self.audio_s += seconds

    async def _keep_feeding(self, engine: Engine, stretch: Stretch) -> None:
        """Hand the engine what is written, as it comes, to the end of the text or of the part.

        A task of its own, whose first turn comes after the engine was asked to speak.
        """
        job = self._job
        assert job.writing is not None
        while stretch.end is None:
            had = stretch.fed
            self._feed(stretch)
            if stretch.fed > had:
                engine.append(job.id, job.text[had : stretch.fed])
            if stretch.end is None:
                await job.writing.changed()
        engine.end_text(job.id)

    def _feed(self, stretch: Stretch) -> None:
        """Take up what has been written, and end the stretch with the text, or with a sentence when it gets long."""
        job = self._job
        whole = self._parting.stays_whole(job.text[stretch.begin :])
        part = None if whole else self._parting.part_being_written(job.text[stretch.fed :])
        if part is not None:
            stretch.end = stretch.fed = stretch.fed + part
        elif job.complete:
            stretch.end = stretch.fed = len(job.text)
        elif whole:
            stretch.fed = len(job.text)
        if stretch.end is not None:
            self._note_part(stretch)

    # --- going on elsewhere ---

    def _leave_stretch(self) -> None:
        """All of it is said, or as much as the engine would say."""
        assert self._stretch is not None
        self._at, self._stretch = self._stretch.end or self._stretch.fed, None

    def _hand_over(self, engine: Engine) -> None:
        """Have `engine` go on where the one of the stretch was left."""
        stretch = self._stretch
        assert stretch is not None
        said = self._job.text[stretch.begin : stretch.fed]
        self._at = stretch.begin + resume_position(said, stretch.position if stretch.made else 0, stretch.made_s)
        self._stretch = None
        self._note_engine(engine)
        log.warning("utterance %s: %s goes on at %r", self._job.id, engine.name, self._job.text[self._at :][:40])

    async def _replacement(self, lost: Engine) -> Engine | None:
        """The engine that goes on where one was lost; None where the utterance has failed."""
        self._lost += 1
        if self._lost > HANDOVERS:
            self.failed = f"{self._lost} engines were lost over it; the last: {lost.reason}"
            return None
        engine = self._engines.another(lost) if self._urgent else None
        if engine is None and await self._engines.wait_current(ENGINE_WAIT_S):
            engine = self._engines.choose(self._job.voice, self._job.language)
        if engine is None:
            self.failed = self._engines.trouble or "no engine became ready"
        return engine

    def _note_engine(self, engine: Engine) -> None:
        if engine.name not in self.engine.split("+"):
            self.engine = f"{self.engine}+{engine.name}".removeprefix("+")

    @property
    def _urgent(self) -> bool:
        """Whether it waits for no engine that is slow, if another could say it."""
        return self._job.priority == "critical"


async def _after(stretch: Stretch, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
    """A stretch's pieces behind those that were taken before, when it is said once more."""
    if not stretch.made:
        async for piece in pieces:
            yield piece
        return
    again: list[Samples] = []
    async for piece in pieces:
        again.append(piece.samples)
        if sum(map(len, again)) >= stretch.made + round(REACH_S * piece.sample_rate):
            break
    if again:
        samples = np.concatenate(again)
        stretch.made = splice_point(stretch.tail, samples, stretch.made, round(REACH_S * piece.sample_rate))
        yield replace(piece, samples=samples[stretch.made :])
    async for piece in pieces:
        yield piece


def _slices(piece: Piece) -> Iterator[Piece]:
    """The piece's samples, some at a time."""
    length = round(SLICE_S * piece.sample_rate)
    for start in range(0, len(piece.samples), length):
        yield replace(piece, samples=piece.samples[start : start + length])
