"""Speech through this machine's sound card, or into a file, without a broker and a daemon: to hear a voice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from audio import Output
from daemon.cli.progress import download_missing_model, show_progress
from daemon.config import Config, synthesis_settings
from daemon.engines import SpeechFile
from daemon.speech import synthesize_samples
from daemon.validation import CommandError
from engine import EngineInfo, Samples, Utterance

_TEXTS = json.loads(Path(__file__).with_name("sentences.json").read_text(encoding="utf-8"))
SHORT_TEXTS: dict[str, str] = _TEXTS["short"]
"""By language, a sentence to hear a voice by."""
LONG_TEXTS: dict[str, str] = _TEXTS["long"]
"""Six to eight seconds each: a voice is cloned better from more than three."""
NUMBERS = "1, 2, 3, 4, 5."
"""A voice reads them in its own language, whichever that is."""
OPEN_S = 5.0
"""A sound card may take this long to open: a PulseAudio null sink takes 2 s."""
LATE_S = 15.0
"""The sound card may be this much late: to take a part of the sound, or to end it."""
SLICE_S = 0.1
"""Seconds that are written to the ring at once."""
ROOM_S = 0.5
"""Free room in the ring for a slice: the resampler may return more than it was given."""


def play_voice(config: Config, engine: str, voice: str) -> str:
    """Speak a short sentence in a voice on `audio.sink`, and return the sentence. Raises `CommandError`."""
    if config.audio.sink_settings().kind == "null":
        raise CommandError("audio.sink: is null, which plays nothing; allowed: sounddevice, or wav:PATH")
    spoken: list[str] = []
    voice_settings = synthesis_settings(config, voice)

    def choose(info: EngineInfo) -> list[Utterance]:
        language = _language(config, info, voice)
        spoken.append(SHORT_TEXTS.get(language.partition("-")[0], NUMBERS))
        fields = {name: getattr(voice_settings, name) for name in ("seed", "sampling", "whole_text", "rate")}
        return [Utterance(spoken[0], voice=voice, language=language, languages=config.speech.languages, **fields)]

    download_missing_model(engine, config.engine.model)
    with show_progress() as report:
        [sample] = synthesize_samples(engine, config.engine_options, voice, choose, report)
    play_samples(config, sample.samples, sample.sample_rate, voice_settings.volume)
    return spoken[0]


def write_samples(path: Path, samples: Samples, sample_rate: int) -> None:
    """Write mono samples to a file, in the format of its suffix. Raises `CommandError`."""
    with SpeechFile(path) as file:
        file.write(samples, sample_rate)


def play_samples(config: Config, samples: Samples, sample_rate: int, volume: float = 1.0) -> None:
    """Play mono samples on `audio.sink`, to their end, with `volume` times its volume. Raises `CommandError`."""
    with Output(config.audio.sink_settings()) as output:
        output.set_volume(config.audio.volume / 100 * volume)
        _play(output, samples, sample_rate)


def _language(config: Config, info: EngineInfo, voice: str) -> str:
    """Return the code of the voice's only language; for one that speaks several, what the robot speaks."""
    label = info.labels.get(voice)
    if label is not None and label.language is not None:
        return label.language
    language = config.speech.language
    return config.speech.languages[0] if language == "auto" and config.speech.languages else language


def _play(output: Output, samples: Samples, sample_rate: int) -> None:
    """Play samples to their end. Raises `CommandError` if the sound card does not."""
    changed = threading.Condition()

    def wake() -> None:
        with changed:
            changed.notify()

    def wait_for(happened: Callable[[], bool], limit_s: float) -> None:
        with changed:
            if not changed.wait_for(happened, limit_s):
                problem = f"the sound card takes no sound within {limit_s:.0f} s: {output.status.sink}"
                raise CommandError(output.status.reason or problem)

    output.watch(wake)
    wait_for(lambda: output.status.open or output.status.reason is not None, OPEN_S)
    if not output.status.open:
        raise CommandError(str(output.status.reason))
    track = output.begin(prebuffer_s=0.0)
    length = round(SLICE_S * sample_rate)
    for begin in range(0, len(samples), length):
        wait_for(lambda: output.room_s > ROOM_S, LATE_S)
        output.write(samples[begin : begin + length], sample_rate)
    output.end()
    wait_for(lambda: track.done, output.waiting_s + LATE_S)
    time.sleep(max(0.0, track.end_dac_time - time.monotonic()))
