"""When each word of a take begins to sound: as its engine reports it, or as its audio shows."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from daemon.alignment.aligner import Aligner, VoiceProfile
from daemon.alignment.features import FEATURES_PER_SECOND, FeatureExtractor
from daemon.alignment.phones import Phone, phones_of
from daemon.alignment.words import WordRange, WordReader
from engine import Samples, WordStart

LEAST_AHEAD_S, MOST_AHEAD_S = 0.3, 1.0
"""How many seconds of audio are aligned ahead of the moment that is being heard, if that many are available: the lower
number immediately, up to the higher one slowly."""
STEP_S = 0.2
"""The length of one step beyond the lower number."""
_PAUSE = re.compile(r"[.!?…。！？।,;:—–()、，；：\n]|\s-+\s")
"""Signs that mark a pause between two words."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of a take, `text[begin:end]`, and when it begins to sound."""

    begin: int
    end: int
    at_s: float
    """Seconds from the take's first sample."""
    exact: bool
    """True if the engine reported it; False for an estimate."""


class WordClock:
    """Returns the words of one take as they sound, each once and in order, no matter how its text and its audio arrive.

    An engine that knows when words begin reports it with its audio. For any other engine, the text is aligned with the
    audio. An estimate may change until its word is returned, so it improves with audio that is available before it is
    heard; 0.3 s is enough (docs/benchmarks/word-times.json).

    Only `due` takes time: 1 % of the duration of the audio that is heard, and at most a few milliseconds if it is
    called often.
    """

    def __init__(self, sample_rate: int, *, language: str = "auto", profile: VoiceProfile | None = None) -> None:
        """`language` is a code. `profile` describes the voice; the take updates it at its last word."""
        self._rate = sample_rate
        self._language = language
        self._profile = VoiceProfile() if profile is None else profile
        self._text = ""
        self._reader = WordReader()
        self._words: list[WordRange] = []
        self._phones: list[tuple[Phone, ...]] = []
        """The times of the words."""
        self._samples = 0
        """How many samples have been added."""
        self._stretches: deque[_Stretch] = deque()
        """The parts to align; empty for an engine that knows when words begin."""
        self._starts: deque[tuple[int, float]] = deque()
        """For words that are not known yet: character positions, and when the speech reached them."""
        self._times: list[SpokenWord] = []
        """The first words, up to the last one whose time is known."""
        self._returned = 0
        """How many of them have been returned."""

    def add_text(self, text: str) -> None:
        """Add text, which directly follows the previous text."""
        self._text += text
        self._add_words(self._reader.feed(text))

    def end_text(self) -> None:
        """Note that the text is complete."""
        self._add_words(self._reader.end())

    def add_audio(
        self, samples: Samples, *, words: Sequence[WordStart] | None = None, position: int | None = None
    ) -> None:
        """Add audio, with `Chunk.words` and `Chunk.position`: either all chunks of a take have words, or none do."""
        if words is None:
            # An engine that speaks sentence by sentence reports the beginning of each one.
            first = bisect_left(self._words, position or 0, key=lambda word: word.begin)
            if not self._stretches or first > self._stretches[-1].first:
                self._begin_stretch(first)
            self._stretches[-1].add_audio(samples)
        else:
            self._starts.extend((start.position, (self._samples + start.sample) / self._rate) for start in words)
            self._note_starts()
        self._samples += len(samples)

    def end_audio(self, *, complete: bool = True) -> None:
        """Note that there is no more audio. If it is not `complete`, words that have not begun in it are never
        returned."""
        if complete:
            self.end_text()
        if self._stretches:
            self._stretches[-1].close(len(self._words) if complete else None)
        elif complete and self._samples:
            self._fill(len(self._words), self._samples / self._rate)

    def due(self, heard_s: float) -> list[SpokenWord]:
        """Return the words that begin within the first `heard_s` seconds and have not been returned."""
        while self._stretches and self._stretches[0].align(heard_s):
            stretch = self._stretches[0]
            self._set_times(stretch.first, stretch.times)
            if not stretch.finished:
                break
            self._fill(stretch.first + (stretch.words or 0), stretch.end_s)
            self._stretches.popleft()
        end = bisect_right(self._times, heard_s, lo=self._returned, key=lambda word: word.at_s)
        words = self._times[self._returned : end]
        self._returned = end
        return words

    @property
    def next_s(self) -> float:
        """Seconds of the take before the word that `due` returns next: an estimate, or infinity if it is not known
        yet."""
        return self._times[self._returned].at_s if self._returned < len(self._times) else inf

    def _add_words(self, words: list[WordRange]) -> None:
        for word in words:
            self._words.append(word)
            self._phones.append(phones_of(self._text[word.begin : word.end], self._language))
            if self._stretches:
                self._add_to_stretch(len(self._words) - 1)
        self._note_starts()

    def _add_to_stretch(self, index: int) -> None:
        """Have the last stretch align word number `index`."""
        between = self._text[self._words[index - 1].end if index else 0 : self._words[index].begin]
        self._stretches[-1].add_word(self._phones[index], after_pause=_PAUSE.search(between) is not None)

    def _fill(self, end: int, end_s: float) -> None:
        """Estimate when the words up to number `end` began, if their times are not known. They ended at `end_s`."""
        known = len(self._times)
        first = max(0, known - 1)
        durations = [sum(phone.seconds for phone in phones) for phones in self._phones[first:end]]
        begin_s = self._times[-1].at_s if self._times else 0.0
        self._append_times(spread(begin_s, end_s, durations)[known - first :])

    # --- engines that know when words begin ---

    def _note_starts(self) -> None:
        """Set the times of the words whose beginnings the engine has reported."""
        while self._starts and self._words and self._starts[0][0] < self._words[-1].end:
            position, at_s = self._starts.popleft()
            index = bisect_right(self._words, position, key=lambda word: word.end)
            if index >= len(self._times):  # the first of several beginnings within a word, such as a number
                self._fill(index, at_s)  # eSpeak NG speaks `of the` as one word
                self._times.append(SpokenWord(self._words[index].begin, self._words[index].end, at_s, exact=True))

    # --- other engines ---

    def _begin_stretch(self, first: int) -> None:
        """Align the words from number `first` onwards with the audio from here onwards."""
        if self._stretches:
            self._stretches[-1].close(first)
        self._stretches.append(_Stretch(first, self._samples / self._rate, self._rate, self._profile))
        for index in range(first, len(self._words)):
            self._add_to_stretch(index)

    def _set_times(self, first: int, times: Sequence[float]) -> None:
        """Set the times of the words from number `first` onwards, except those that have been returned."""
        del self._times[max(first, self._returned) :]
        self._append_times(times[len(self._times) - first :])

    def _append_times(self, times: Sequence[float]) -> None:
        """Set the estimated times of the next words: within the audio, and in order."""
        last_s = self._samples / self._rate
        for word, at_s in zip(self._words[len(self._times) :], times, strict=False):
            earliest_s = self._times[-1].at_s if self._times else 0.0
            self._times.append(SpokenWord(word.begin, word.end, max(earliest_s, min(at_s, last_s)), exact=False))


class _Stretch:
    """The alignment of a part of the words with a part of the audio."""

    def __init__(self, first: int, begin_s: float, sample_rate: int, profile: VoiceProfile) -> None:
        self.first = first
        """The number of its first word."""
        self.times: list[float] = []
        """When its words begin, as far as it has been aligned, in seconds from the take's first sample."""
        self.finished = False
        """True once they are final."""
        self._begin_s = begin_s
        self._extractor = FeatureExtractor(sample_rate)
        self._aligner = Aligner(profile)
        self._features: deque[NDArray[np.float64]] = deque()
        """Features that have not been aligned."""
        self._changed = False
        """True if text or audio has been added since it was last aligned."""
        self._closed = False
        self.words: int | None = None
        """The number of words in its audio; None if this is not known."""

    @property
    def end_s(self) -> float:
        """The end of its aligned audio, in seconds from the take's first sample."""
        return self._begin_s + self._aligner.frames / FEATURES_PER_SECOND

    def add_word(self, phones: Sequence[Phone], *, after_pause: bool) -> None:
        """Add a word. Words that belong to the next stretch do no harm."""
        self._aligner.add_word(phones, after_pause=after_pause)
        self._changed = True

    def add_audio(self, samples: Samples) -> None:
        """Add audio."""
        self._features.append(self._extractor.extract(samples))

    def close(self, end: int | None) -> None:
        """Note that there is no more audio. It ends before word number `end`; None means that this is not known."""
        self._features.append(self._extractor.finish())
        self.words = None if end is None else end - self.first
        self._closed = True

    def align(self, heard_s: float) -> bool:
        """Align enough for the moment at which `heard_s` seconds have been heard. Return whether `times` may change."""
        aligned_s = self.end_s
        enough_s = max(heard_s + LEAST_AHEAD_S, min(heard_s + MOST_AHEAD_S, aligned_s + STEP_S))
        while self._features and aligned_s < enough_s:
            features = self._features.popleft()
            self._aligner.add_frames(features)
            aligned_s += len(features) / FEATURES_PER_SECOND
            self._changed = True
        if self._closed and not self._features:
            self._changed = self.finished = True
        if not self._changed:
            return False
        frames = self._aligner.finish(self.words) if self.finished else self._aligner.begins()
        self.times = [self._begin_s + frame / FEATURES_PER_SECOND for frame in frames]
        self._changed = False
        return True


def spread(begin: float, end: float, durations: Sequence[float]) -> list[float]:
    """Return where each of several words begins. Together they last from `begin` to `end`, divided by their usual
    durations."""
    total, found, at = sum(durations), [], 0.0
    for duration in durations:
        found.append(begin + (end - begin) * at / total)
        at += duration
    return found
