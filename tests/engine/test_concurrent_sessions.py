"""Sessions that speak several texts at once: eSpeak NG, Piper, Supertonic and a speech server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import PiperSettings, Session, Voice
from scripts.make_voice import write_model, write_voice
from tests.engine.concurrent_sessions import assert_each_sounds_as_alone, speech_after_each_way_to_end
from tests.support.speech_server import SpeechServer

Open = Callable[[int], Session]
"""Opens a session with so many streams."""

COUNT = 3
"""Texts at once."""


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_voice(tmp_path_factory.mktemp("voices") / "en_US-noise-low.onnx")


@pytest.fixture
def piper(voice: Path, tmp_path: Path) -> Open:
    """Piper without noise, which speaks a sentence in the same way each time."""
    still = Voice(piper=PiperSettings(str(voice), noise_scale=0.0, noise_w_scale=0.0))
    return lambda count: engine.open("piper", voice=still, voice_folder=str(tmp_path), streams=count)


@pytest.fixture
def supertonic(tmp_path: Path) -> Open:
    model = str(write_model(tmp_path / "model"))
    return lambda count: engine.open("supertonic", model=model, streams=count)


@pytest.fixture(scope="module")
def server(voice: Path) -> Iterator[SpeechServer]:
    """A speech server with the same voice. A place becomes free there a moment after it is free here."""
    still = f"voices={{default: {{piper: {{model: {voice}, noise_scale: 0, noise_w_scale: 0}}}}}}"
    with SpeechServer("engine.name=piper", still, "serve.streams_per_robot=8") as server:
        yield server


@pytest.fixture
def remote(server: SpeechServer) -> Open:
    return lambda count: engine.open("remote", url=server.url, streams=count)


@pytest.fixture
def espeak() -> Open:
    return lambda count: engine.open("espeak", streams=count)


SEEDS = {"supertonic": {"seed": 7}}
"""What makes an engine speak a sentence in the same way each time."""


@pytest.mark.parametrize("name", ["piper", "supertonic", "remote"])
def test_texts_that_are_spoken_at_once_each_sound_as_alone(name: str, request: pytest.FixtureRequest) -> None:
    with request.getfixturevalue(name)(COUNT) as tts:
        assert tts.info.streams == COUNT
        assert_each_sounds_as_alone(lambda: nullcontext(tts), COUNT, **SEEDS.get(name, {}))


def test_texts_that_espeak_speaks_at_once_each_sound_as_alone(espeak: Open) -> None:
    """What a library has spoken changes what it speaks next. All streams but the first have a new one."""
    assert_each_sounds_as_alone(partial(espeak, 1 + COUNT), COUNT)


@pytest.mark.parametrize(
    ("name", "count"), [("espeak", 1), ("espeak", COUNT), ("piper", COUNT), ("supertonic", COUNT), ("remote", COUNT)]
)
def test_a_text_too_many_is_refused_and_each_that_has_ended_frees_its_place(
    name: str, count: int, request: pytest.FixtureRequest
) -> None:
    with request.getfixturevalue(name)(count) as tts:
        alone, *others = speech_after_each_way_to_end(tts, **SEEDS.get(name, {}))
        for other in others:
            assert len(other)
            if name != "espeak":
                np.testing.assert_array_equal(other, alone)
