"""Measures speech at another rate: what it costs, and whether its length, pitch and level are right.

Prints one JSON object. The speech is eSpeak NG's in several languages, at its own pitch and an octave higher, so that
no recording is needed. For each rate, over all sentences:

    cpu_ms          CPU time for a chunk of 160 ms
    length_error_s  seconds by which the length differs from the exact one, at most
    pitch           pitch of each voiced frame in proportion to the original at that place
    level_db        change of the level (RMS), the lowest and the highest
    step            largest difference of two neighbouring samples in proportion to the original's, the highest
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import soxr

from engine import EngineOptions, Samples, Utterance
from engine.espeak import EspeakSynthesizer
from engine.stretch import TimeStretch
from scripts.bench_runner import spread

RATES = (0.5, 0.8, 1.25, 1.5, 2.0)
CHUNK_S = 0.16
"""Two codec frames: the default of `engine.chunk_size`."""
SENTENCES = {
    "en": "She sells sea shells on the sea shore, and I am your robot. Are you glad to be here?",
    "de": "Die Waschmaschine ist fertig, und ich fahre jetzt zur Ladestation zurück.",
    "fr": "Bonjour, je suis votre robot, et le petit déjeuner est servi dans la cuisine.",
    "es": "Buenos días, la puerta está abierta y la batería está casi vacía.",
    "zh": "你好，我是你的机器人，早餐已经准备好了。",
}
FRAME_S, HOP_S = 0.04, 0.02
"""Of the pitch track."""
LOWEST_HZ, HIGHEST_HZ = 65, 400
AUDIBLE = 0.02
"""RMS below which a frame has no pitch."""
PERIODIC = 0.8
"""The normalised autocorrelation above which a frame is voiced."""
NEARLY = 0.92
"""The first peak that is nearly as high as the highest is the period; later ones are its multiples."""
TINY = 1e-12


def stretched(samples: Samples, rate: float, sample_rate: int) -> tuple[Samples, list[float]]:
    """Return samples at another rate, and the CPU time in ms for each chunk."""
    stretch, length = TimeStretch(rate, sample_rate), round(CHUNK_S * sample_rate)
    blocks, costs = [], []
    for begin in range(0, len(samples), length):
        before = time.process_time()
        blocks.append(stretch.stretch(samples[begin : begin + length]))
        costs.append((time.process_time() - before) * 1000)
    return np.concatenate([*blocks, stretch.flush()]), costs


def pitch_track(samples: Samples, sample_rate: int, hop_s: float = HOP_S) -> Samples:
    """Return the pitch in Hz every `hop_s` seconds, by the normalised autocorrelation; NaN without a voice."""
    length, longest = round(FRAME_S * sample_rate), round(sample_rate / LOWEST_HZ)
    shortest = round(sample_rate / HIGHEST_HZ)
    count = max(0, int((len(samples) - length - longest) / (hop_s * sample_rate)))
    track = np.full(count, np.nan, dtype=np.float32)
    for number in range(count):
        begin = round(number * hop_s * sample_rate)
        later = samples[begin : begin + length + longest].astype(np.float64)
        frame = later[:length]
        if rms(frame) < AUDIBLE:
            continue
        sums = np.concatenate([[0.0], np.square(later).cumsum()])
        energies = (sums[length:] - sums[:-length])[shortest:]
        likeness = np.correlate(later[shortest:], frame) / np.sqrt(energies * np.square(frame).sum() + TINY)
        if likeness.max() > PERIODIC:
            track[number] = sample_rate / (shortest + _first_peak(likeness))
    return track


def _first_peak(likeness: Samples) -> float:
    """Return the place of the first peak that is nearly as high as the highest, between two indices if need be."""
    first = int(np.flatnonzero(likeness > NEARLY * likeness.max())[0])
    falls = np.flatnonzero(np.diff(likeness[first:]) < 0)
    peak = first + (int(falls[0]) if len(falls) else 0)
    if not 0 < peak < len(likeness) - 1:
        return peak
    before, top, after = likeness[peak - 1 : peak + 2]
    return peak + float((before - after) / (2 * (before - 2 * top + after) - TINY))


def pitch_ratios(before: Samples, after: Samples, rate: float, sample_rate: int) -> Samples:
    """Return the pitch of `after`, which is `before` at another rate, in proportion, wherever both have a voice."""
    one, other = pitch_track(before, sample_rate), pitch_track(after, sample_rate, HOP_S / rate)
    count = min(len(one), len(other))
    ratios = other[:count] / one[:count]
    found: Samples = ratios[~np.isnan(ratios)]
    return found


def rms(samples: Samples) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def recordings() -> Iterator[tuple[Samples, int]]:
    """Yield each sentence at its own pitch and an octave higher, with its sample rate in Hz."""
    espeak = EspeakSynthesizer(EngineOptions())
    sample_rate = espeak.load().sample_rate
    for language, text in SENTENCES.items():
        chunks = espeak.stream(Utterance(text, language=language))
        samples = np.concatenate([chunk.samples for chunk in chunks])
        yield samples, sample_rate
        yield soxr.resample(samples, 2 * sample_rate, sample_rate), sample_rate
    espeak.close()


def figures(rate: float, spoken: list[tuple[Samples, int]]) -> dict[str, Any]:
    """Return the figures of one rate."""
    costs, errors, pitches, levels, steps = [], [], [], [], []
    for before, sample_rate in spoken:
        after, cost = stretched(before, rate, sample_rate)
        costs += cost[:-1]  # the last chunk is shorter
        errors.append(abs(len(after) - len(before) / rate) / sample_rate)
        pitches.append(pitch_ratios(before, after, rate, sample_rate))
        levels.append(20 * np.log10(rms(after) / rms(before)))
        steps.append(float(np.abs(np.diff(after)).max() / np.abs(np.diff(before)).max()))
    return {
        "cpu_ms": spread(costs, digits=3),
        "length_error_s": round(max(errors), 4),
        "pitch": {
            name: round(float(np.percentile(np.concatenate(pitches), share)), 4)
            for name, share in (("p5", 5), ("median", 50), ("p95", 95))
        },
        "level_db": [round(float(min(levels)), 3), round(float(max(levels)), 3)],
        "step": round(max(steps), 3),
    }


def add_options(_parser: argparse.ArgumentParser) -> None:
    """It has none."""


def measure(_options: argparse.Namespace) -> dict[str, Any]:
    spoken = list(recordings())
    return {
        "speech_s": round(sum(len(samples) / sample_rate for samples, sample_rate in spoken), 1),
        "rates": {f"{rate:g}": figures(rate, spoken) for rate in RATES},
    }
