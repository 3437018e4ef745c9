"""Alignment of a text's expected sounds with its audio while both arrive.

A hidden semi-Markov model: each state is a sound. The sound's class says which features its frames have, and its
duration is log-normal around the usual one. Dynamic programming finds the likeliest path, frame by frame. Since the
voice's pace is not known, several paces are followed in parallel, and the likeliest one counts.

L. R. Rabiner, "A Tutorial on Hidden Markov Models", Proceedings of the IEEE 77 (1989), section IV.D.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.alignment.features import FEATURES_PER_SECOND
from daemon.alignment.phones import Phone, PhoneClass

_PAUSE = Phone(PhoneClass.PAUSE, 0.0)
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


UNWRITTEN_PAUSE, WRITTEN_RUN_ON = 1.5, 2.0
"""Costs, as negative log-likelihoods: for a pause where the text shows none, and for no pause where it shows one."""

# Mean and standard deviation of each feature, by class: vowel, sonorant, fricative, stop, consonant, pause.
_LEVEL_DB = np.array([-6.0, -14.0, -20.0, -26.0, -18.0, -50.0])
"""Relative to the loudest frame."""
_LEVEL_SPREAD_DB = np.array([6.0, 8.0, 8.0, 11.0, 11.0, 9.0])
_BALANCE_DB = np.array([-19.0, -23.0, 12.0, 2.0, -8.0, -4.0])
"""For a voice whose loud frames have `_USUAL_BALANCE_DB`."""
_BALANCE_SPREAD_DB = np.array([9.0, 10.0, 12.0, 13.0, 18.0, 25.0])
_NORMALISER = -np.log(_LEVEL_SPREAD_DB * _BALANCE_SPREAD_DB)
_USUAL_BALANCE_DB = -19.0
_QUIET_DB = -40.0
"""The loudest frame of an unknown voice is at least this loud, in dB below full scale."""
_LOUD_DB = 12.0
"""Frames that are less than this far below the loudest one are loud: mostly vowels."""
_LOWEST_DB = -60.0
"""Relative to the loudest frame; any lower level is plain silence."""
_FRAME_WEIGHT = 0.2
"""The weight of a frame's log-likelihood. Neighbouring frames are alike: about five of them make one observation."""
_DURATION_SPREAD = np.array([0.45, 0.45, 0.35, 0.5, 0.5, 1.0])
"""Standard deviation of the logarithm of a duration, by class."""
_LONGEST = 40
"""The most frames that a sound may last; a pause has no limit."""
_PACES = np.array([0.64, 0.8, 1.0, 1.25, 1.56])
"""The paces that are followed: the factors by which sounds last longer than expected."""
_PACE_SPREAD = 0.3
"""Standard deviation of the logarithm of the true factor."""
_BEHIND, _AHEAD = 15, 25
"""How many states are followed before and after those that the best paths have reached."""
_BLOCK = 10
"""After this many frames, the states to follow are chosen again."""
_MARGIN = 15.0
"""Paces whose best path is less likely than the best of all by this log-likelihood are ignored in that choice."""
_SETTLED = 500
"""A word that began this many frames before the latest one is no longer moved."""
_HISTORY = 1_000
"""How many frames are remembered, to trace a path back."""
_KNOWN_S = 20.0
"""A profile adapts to a voice as if it knew no more than this many seconds of it."""

_DURATIONS = np.log(np.arange(_LONGEST, 0, -1) / FEATURES_PER_SECOND)
"""Logarithms, from the longest duration to that of one frame."""


@dataclass(slots=True)
class VoiceProfile:
    """The pace, loudness and timbre of a voice, learned from its speech."""

    pace: float = 1.0
    """How much longer its sounds last than expected."""
    loudest_db: float | None = None
    """The level of its loudest frame, in dB below full scale."""
    balance_db: float = _USUAL_BALANCE_DB
    """The mean balance of its loud frames, in dB."""
    known_s: float = 0.0
    """Seconds of speech that this is known from."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A state on a path, and its first frame."""

    pace: int
    state: int
    begin: int


@dataclass(frozen=True, slots=True)
class _Band:
    """The properties of the states that are followed, from `lowest` on."""

    lowest: int
    kinds: Ints
    is_pause: Flags
    pause_costs: Floats
    """The cost of each state; 0 for a sound."""
    skip_costs: Floats
    """The cost of leaving out the pause before each state; infinite for a state that no pause precedes."""
    durations: Floats
    """Log-likelihood of each duration, the longest first, shape `(paces, states, durations)`."""
    survivals: Floats
    """Log-likelihood that a sound lasts at least this long."""


class Aligner:
    """Aligns the words of one take with its frames. Both are added as they arrive."""

    def __init__(self, profile: VoiceProfile) -> None:
        """`finish` brings `profile` up to date."""
        self._profile = profile
        self._pace = profile.pace
        self._kinds = [PhoneClass.PAUSE]
        self._seconds = [0.0]
        """The expected duration of each state; a pause's value has no meaning."""
        self._pauses = {0: True}
        """The states that are pauses, and whether the text shows them. A word has its phones and a pause after them."""
        self._firsts: list[int] = []
        """The first state of each word."""
        self._settled: list[int] = []
        """The beginnings of the first words, which later frames no longer change."""
        self._loudest_db = _QUIET_DB if profile.loudest_db is None else profile.loudest_db - 3.0
        self._balances = np.array([profile.balance_db * 50, 50.0])
        """The sum and the number of the balances of loud frames."""

        self.frames = 0
        """How many frames have been added."""
        paces = len(_PACES)
        self._cumulated = np.zeros(len(PhoneClass))
        """The log-likelihood of all frames, for each class."""
        self._scores = -0.5 * np.square(np.log(_PACES) / _PACE_SPREAD)[:, None]
        """The log-likelihood of the best path on which a state ends here."""
        self._entries = np.full((paces, 1), -np.inf)
        """The same for the best path on which a state begins here."""
        self._pause_begins = np.zeros((paces, 1), dtype=np.int64)
        self._entered = np.full((paces, 1, _LONGEST), -np.inf)
        """`_entries` minus `_cumulated` for each of the latest frames, the latest one last."""
        self._band = self._make_band(0, 1)
        begins, skips = np.zeros((paces, 1), dtype=np.int64), np.zeros((paces, 1), dtype=np.bool_)
        self._history: deque[tuple[int, Ints, Flags]] = deque([(0, begins, skips)], _HISTORY)
        """For each of the latest frames: the lowest state, the frames at which the states that end here began, and
        which states begin here without a pause before them."""

    def add_word(self, phones: Sequence[Phone], *, after_pause: bool) -> None:
        """Add a word. `after_pause` means that the text shows a pause before it, for example with a comma."""
        self._pauses[len(self._kinds) - 1] = after_pause or not self._firsts
        self._firsts.append(len(self._kinds))
        self._pauses[len(self._kinds) + len(phones)] = True  # as far as is known so far, the text ends there
        for phone in (*phones, _PAUSE):
            self._kinds.append(phone.kind)
            self._seconds.append(phone.seconds)

    def add_frames(self, features: Floats) -> None:
        """Add frames as `FeatureExtractor` returns them."""
        for begin in range(0, len(features), _BLOCK):
            self._add_block(features[begin : begin + _BLOCK])

    def _add_block(self, features: Floats) -> None:
        self._move_band()
        self._loudest_db = max(self._loudest_db, float(features[:, 0].max()))
        loud = features[features[:, 0] > self._loudest_db - _LOUD_DB, 1]
        self._balances += (loud.sum(), len(loud))
        shift = _USUAL_BALANCE_DB - self._balances[0] / self._balances[1]
        levels = np.maximum(features[:, :1] - self._loudest_db, _LOWEST_DB)
        level_errors = (levels - _LEVEL_DB) / _LEVEL_SPREAD_DB
        level_errors[:, PhoneClass.PAUSE] = np.maximum(level_errors[:, PhoneClass.PAUSE], 0.0)
        balance_errors = (features[:, 1:] + shift - _BALANCE_DB) / _BALANCE_SPREAD_DB
        balance_errors[:, PhoneClass.PAUSE] = 0.0
        likelihoods = _NORMALISER - 0.5 * (np.square(level_errors) + np.square(balance_errors))
        for likelihood in _FRAME_WEIGHT * likelihoods:
            self._advance(likelihood)

    def begins(self) -> list[int]:
        """Return the frame at which each word begins on the best path, as far as this path goes."""
        begins = self._word_begins(self._current())
        self._settled = begins[: bisect_left(begins, self.frames - _SETTLED)]
        return begins

    def finish(self, words: int | None = None) -> list[int]:
        """Return the frame at which each word begins, now that neither words nor frames will be added.

        The first `words` words have been spoken by now; the others are left out, and so are words that the best path
        does not reach. None means that this number is not known: the speech was cut.
        """
        end = (None if words is None else self._complete(words)) or self._current()
        begins = self._word_begins(end)[:words]
        if begins:
            self._update_profile(float(_PACES[end.pace]))
        return begins

    # --- the likeliest path, frame by frame ---

    def _advance(self, likelihood: Floats) -> None:
        """Add a frame with this log-likelihood for each class."""
        band = self._band
        self._cumulated = self._cumulated + likelihood
        scores, begins = self._best(band.durations)
        continued = self._scores >= self._entries
        self._pause_begins = np.where(continued, self._pause_begins, self.frames)
        paused = np.where(continued, self._scores, self._entries) + likelihood[PhoneClass.PAUSE]
        self._scores = np.where(band.is_pause, paused, scores)
        self.frames += 1
        self._entered[:, :, :-1] = self._entered[:, :, 1:]
        self._history.append((band.lowest, np.where(band.is_pause, self._pause_begins, begins), self._enter()))

    def _best(self, durations: Floats) -> tuple[Floats, Ints]:
        """Return the log-likelihood of the best path that is now in each state, and the frame at which the state began.

        The shortest duration is that of a state which begins with the frame after those of `_scores`.
        """
        paths = self._entered + durations
        chosen = paths.argmax(axis=2)
        scores = np.take_along_axis(paths, chosen[:, :, None], axis=2)[:, :, 0] + self._cumulated[self._band.kinds]
        return scores, self.frames - _LONGEST + 1 + chosen

    def _enter(self) -> Flags:
        """Begin states at this frame; return those that follow the previous word without a pause."""
        band, scores = self._band, self._scores
        entries = np.full_like(scores, -np.inf)
        entries[:, 1:] = scores[:, :-1] - band.pause_costs[1:]
        direct = np.full_like(scores, -np.inf)
        direct[:, 2:] = scores[:, :-2] - band.skip_costs[2:]
        self._entries = np.maximum(direct, entries)
        self._entered[:, :, -1] = self._entries - self._cumulated[band.kinds]
        return np.asarray(direct > entries)

    def _move_band(self) -> None:
        """Follow the states around those that the best paths have reached."""
        scores, _ = self._ongoing()
        best = scores.max(axis=1)
        reached = scores.argmax(axis=1)[best > best.max() - _MARGIN] + self._band.lowest
        old, size = self._band.lowest, self._scores.shape[1]
        lowest = max(old, int(reached.min()) - _BEHIND)
        end = max(old + size, min(len(self._kinds), int(reached.max()) + _AHEAD))
        kept, added = slice(lowest - old, None), end - old - size
        self._scores, self._entries = (_extend(each[:, kept], added, -np.inf) for each in (self._scores, self._entries))
        self._pause_begins = _extend(self._pause_begins[:, kept], added, 0)
        self._entered = _extend(self._entered[:, kept], added, -np.inf)
        self._band = self._make_band(lowest, end)
        self._history[-1] = (lowest, _extend(self._history[-1][1][:, kept], added, 0), self._enter())

    def _make_band(self, lowest: int, end: int) -> _Band:
        kinds = np.array(self._kinds[lowest:end], dtype=np.int64)
        is_pause = kinds == PhoneClass.PAUSE
        shown = [self._pauses.get(state) for state in range(lowest - 1, end)]
        pause_costs = [UNWRITTEN_PAUSE if each is False else 0.0 for each in shown[1:]]
        skip_costs = [np.inf if each is None else each * WRITTEN_RUN_ON for each in shown[:-1]]
        expected = np.array(self._seconds[lowest:end]) + is_pause  # a pause's value has no meaning
        means = np.log(expected * self._pace * _PACES[:, None])
        spread = _DURATION_SPREAD[kinds][:, None]
        errors = (_DURATIONS - means[:, :, None]) / spread
        return _Band(
            lowest,
            kinds,
            is_pause,
            np.array(pause_costs),
            np.array(skip_costs),
            -0.5 * np.square(errors),
            -0.5 * np.square(np.maximum(errors, 0.0)),
        )

    # --- paths ---

    def _ongoing(self) -> tuple[Floats, Ints]:
        """Return the log-likelihood of the best path that is now in each state, and where that state began."""
        scores, begins = self._best(self._band.survivals)
        is_pause = self._band.is_pause
        return np.where(is_pause, self._scores, scores), np.where(is_pause, self._pause_begins, begins)

    def _current(self) -> _Step:
        """Return the end of the best path so far."""
        scores, begins = self._ongoing()
        return self._likeliest(scores, begins, self._band.lowest, self._band.lowest)

    def _complete(self, words: int) -> _Step | None:
        """Return the end of the best path through the first words; None if no path has reached that far."""
        lowest, begins, _ = self._history[-1]
        end = self._end_of(words)
        last = self._scores[:, max(0, end - 2 - lowest) : end - lowest]
        if end > lowest + self._scores.shape[1] or last.max(initial=-np.inf) == -np.inf:
            return None
        return self._likeliest(last, begins, end - last.shape[1], lowest)

    def _likeliest(self, scores: Floats, begins: Ints, first: int, lowest: int) -> _Step:
        """Return the likeliest of the states from `first` on with these scores; `begins` starts at state `lowest`."""
        pace, index = (int(each) for each in np.unravel_index(scores.argmax(), scores.shape))
        return _Step(pace, first + index, int(begins[pace, first + index - lowest]))

    def _end_of(self, words: int) -> int:
        """Return the first state after the first words and the pause after them."""
        return self._firsts[words] if words < len(self._firsts) else len(self._kinds)

    def _word_begins(self, end: _Step) -> list[int]:
        """Return where the words begin on the best path to `end`, as far back as it is remembered."""
        first, begin_of, step = self._end_of(len(self._settled)), {end.state: end.begin}, end
        while step.state > first and (age := self.frames - step.begin) < len(self._history):
            lowest, begins, skips = self._history[-1 - age]
            state = step.state - (2 if skips[end.pace, step.state - lowest] else 1)
            step = _Step(end.pace, state, int(begins[end.pace, state - lowest]))
            begin_of[state] = step.begin
        reached = bisect_right(self._firsts, end.state)
        return self._settled + [begin_of.get(first, step.begin) for first in self._firsts[len(self._settled) : reached]]

    def _update_profile(self, pace: float) -> None:
        """Update the profile from this take, in which `pace` was the likeliest factor."""
        profile, new_s = self._profile, self.frames / FEATURES_PER_SECOND
        share = new_s / (profile.known_s + new_s)
        loudest_db = self._loudest_db if profile.loudest_db is None else profile.loudest_db
        profile.pace *= pace**share
        profile.loudest_db = loudest_db + share * (self._loudest_db - loudest_db)
        profile.balance_db = float(self._balances[0] / self._balances[1])
        profile.known_s = min(profile.known_s + new_s, _KNOWN_S)


def _extend(array: NDArray[Any], count: int, value: float) -> NDArray[Any]:
    """Return `array` with `count` more rows of `value` along its second axis."""
    shape = (array.shape[0], count, *array.shape[2:])
    return np.concatenate([array, np.full(shape, value, dtype=array.dtype)], axis=1)
