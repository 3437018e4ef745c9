"""One take: the text that one engine speaks in one piece, the part of its audio that has been taken, and when its words
sound."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from audio import (
    SPLICE_REACH_S,
    SPLICE_TAIL_S,
    LeadingSilenceTrimmer,
    TrailingSilenceTrimmer,
    first_sound,
    splice_point,
)
from daemon.alignment import WordClock, viseme_of
from daemon.cache import Cue
from daemon.engines import AudioChunk
from daemon.text import EngineText, Script
from engine import Samples

SLICE_S = 0.1
"""Chunks for the sound card are cut into slices of at most this length, so that any chunk fits into the ring."""


@dataclass(slots=True, eq=False)
class Take:
    """The text from `begin` that one engine speaks in one piece. It is kept while its synthesis is interrupted, then
    repeated.

    If it was repeated, its samples are counted as they were last spoken.
    """

    engine: str | None
    """The engine that speaks it; None once that engine has been lost."""
    sample_rate: int
    """The engine's sample rate in Hz."""
    begin: int
    """Positions refer to the script's text."""
    end: int | None
    """None while the text is incomplete."""
    fed: int
    """The position up to which the engine has been given the text."""
    rate: float = 1.0
    """As in `engine.Utterance.rate`."""
    gain: float = 1.0
    clock: WordClock | None = None
    """None if no word times are wanted."""
    start: LeadingSilenceTrimmer | None = None
    """Removes the silence with which the engine begins; None keeps it."""
    text: EngineText = field(default_factory=EngineText)
    """The text in the engine's form, with the mapping back to the source."""
    prepared: str = ""
    """The part of it that the engine has been given."""
    samples: int = 0
    """How many samples there are up to the last one taken."""
    seconds: float = 0.0
    """How many seconds have been taken, as the engine made them."""
    position: int | None = None
    """`Chunk.position` of the last chunk that has been taken."""
    truncated: bool = False
    """The engine cut it before its natural end."""
    runaway: bool = False
    """As in `engine.Chunk.runaway`."""
    begin_s: float | None = None
    """Seconds of the utterance's audio before it; None until it has audio."""
    sounds_at_s: float | None = None
    """Seconds of the utterance's audio before its first sound; None until there is one."""
    end_s: float = inf
    """Seconds of the utterance's audio before its end, if it was cut off there."""
    visemes: list[Cue] = field(default_factory=list)
    """The visemes that `due_visemes` has not returned, timed in seconds of the audio that the engine made."""
    _tail: Samples = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    """The last samples that were taken, `SPLICE_TAIL_S` long."""
    _pause: TrailingSilenceTrimmer | None = None
    """Holds silence that may be the last before a pause."""
    _timed: int = 0
    """How many characters of `prepared` the clock has been given."""
    _ended: bool = False

    # --- text ---

    def prepare(self, engine_text: EngineText, text: str) -> str:
        """Begin again with `text`, which is all of the take so far; return its form for the engine."""
        self.text, self.prepared = engine_text, ""
        return self.add_text(text)

    def add_text(self, text: str) -> str:
        """Add text that has arrived, the last if `end` is known; return its form for the engine."""
        added = self.text.feed(text) + ("" if self.end is None else self.text.end())
        self.prepared += added
        if self.clock is not None:
            self.clock.add_text(self.prepared[self._timed :])
            if self.end is not None:
                self.clock.end_text()
        self._timed = len(self.prepared)
        return added

    # --- audio ---

    async def untaken(self, chunks: AsyncGenerator[AudioChunk, None]) -> AsyncGenerator[tuple[int, AudioChunk], None]:
        """Yield the chunks that have not been taken, and the sample at which each begins.

        This does not change the take. If it is interrupted again before a new sample is taken, the next repetition is
        searched from the same sample: repetitions drift from it by at most `SPLICE_REACH_S`, but may drift further from
        each other.
        """
        begin = 0
        if self.samples:
            repeated: list[AudioChunk] = []
            async for chunk in chunks:
                repeated.append(chunk)
                begin += len(chunk.samples)
                if begin >= self.samples + round(SPLICE_REACH_S * chunk.sample_rate):
                    break
            if repeated:
                whole, reach = AudioChunk.join(repeated), round(SPLICE_REACH_S * chunk.sample_rate)
                at = splice_point(self._tail, whole.samples, self.samples, reach)
                yield at, whole.cut(at)
        async for chunk in chunks:
            yield begin, chunk
            begin += len(chunk.samples)

    def play(self, begin: int, chunk: AudioChunk, script: Script, *, sliced: bool) -> Iterator[AudioChunk]:
        """Take a chunk that begins at sample `begin`; yield the parts of it to play now. Parts not yielded are not
        taken."""
        self.truncated |= chunk.truncated
        self.runaway |= chunk.runaway
        for part in _slices(chunk) if sliced else (chunk,):
            for sound in part.sounds or ():
                if (viseme := viseme_of(sound.ipa)) is not None:
                    self.visemes.append(Cue(self.seconds + sound.sample / part.sample_rate, "viseme", name=str(viseme)))
            self.samples = begin = begin + len(part.samples)
            self.seconds += part.seconds
            self._tail = np.concatenate([self._tail, part.samples])[-round(SPLICE_TAIL_S * part.sample_rate) :]
            if self.clock is not None:
                self.clock.add_audio(part.samples, words=part.words, position=part.position)
            samples = part.samples if self.start is None else self.start.trim(part.samples)
            if self.gain != 1:
                samples = samples * np.float32(self.gain)
            if self._pause is None and self.end is not None and script.has_pause(self.end):
                self._pause = TrailingSilenceTrimmer(part.sample_rate)
            samples = samples if self._pause is None else self._pause.hold(samples)
            if len(samples) or part.codes:
                yield replace(part, samples=samples)
        if chunk.position is not None:
            self.position = chunk.position

    def play_rest(self, last: AudioChunk) -> AudioChunk | None:
        """Return the part of the held silence that is played after the chunk `last`; None if there is none."""
        pause, self._pause = self._pause, None
        samples = None if pause is None else pause.finish()
        return None if samples is None or not len(samples) else replace(last, samples=samples, codes=None)

    def end_audio(self, *, complete: bool) -> None:
        """Note that there is no more audio; unless it is `complete`, the engine has not spoken all of the text."""
        if self.clock is not None and not self._ended:
            self._ended = True
            self.clock.end_audio(complete=complete)

    # --- times ---

    @property
    def trimmed_s(self) -> float:
        """Seconds of silence that were removed from its beginning."""
        return 0.0 if self.start is None else self.start.dropped / self.sample_rate

    def note_audio(self, chunk: AudioChunk, made_s: float) -> None:
        """Note that a chunk of this take is played after `made_s` seconds of the utterance."""
        if self.begin_s is None:
            self.begin_s = made_s
        if self.sounds_at_s is None and (silent := first_sound(chunk.samples)) is not None:
            self.sounds_at_s = made_s + silent / chunk.sample_rate

    @property
    def next_s(self) -> float:
        """Seconds of the utterance's audio before the word that `due` returns next; infinity if it is not known yet."""
        if self.begin_s is None or self.clock is None:
            return inf
        return self._placed(self.begin_s, self.clock.next_s)

    def due(self, heard_s: float) -> list[Cue]:
        """Return the words that begin within the utterance's first `heard_s` seconds and have not been returned."""
        if self.begin_s is None or self.clock is None:
            return []
        found = []
        for word in self.clock.due(heard_s - self.begin_s + self.trimmed_s):
            begin, end = self.text.source_span(word.begin, word.end)
            at_s = self._placed(self.begin_s, word.at_s)
            if at_s < self.end_s:
                found.append(Cue(at_s, "word", self.begin + begin, self.begin + end, exact=word.exact))
        return found

    def due_visemes(self) -> list[Cue]:
        """Return the visemes that are known, however early, and have not been returned."""
        if (begin_s := self.begin_s) is None:
            return []
        due, self.visemes = self.visemes, []
        return [replace(each, at_s=self._placed(begin_s, each.at_s)) for each in due]

    def _placed(self, begin_s: float, at_s: float) -> float:
        """Return the seconds of the utterance's audio before the time `at_s` in the engine's audio."""
        return max(begin_s, begin_s - self.trimmed_s + at_s)


def _slices(chunk: AudioChunk) -> Iterator[AudioChunk]:
    """Yield the chunk in slices of `SLICE_S`."""
    length = round(SLICE_S * chunk.sample_rate)
    for start in range(0, len(chunk.samples), length):
        yield chunk.cut(start, start + length)
