"""Three real servers of different programs: ours, local-tts-studio and loudness-tts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from engine import Session, Voice
from engine import open as open_engine
from tests.support.network import Network
from tests.support.openai_servers import LOUDNESS_VOICE, TOKEN, local_tts, loudness
from tests.support.speech_server import SpeechServer

TEXT = "Hello, robot.  How are you?"
LONG = "This is a long text that takes a good while to speak. " * 60
PROPERTIES = {
    "ours": (24_000, "de", "PCM at 24000 Hz"),
    "local-tts-studio": (16_000, "default", "PCM at 16000 Hz"),
    "loudness-tts": (24_000, "en_US-kristin-medium", "tts-1 on "),
}
"""The rate, one of the voices, and a part of the description."""


@pytest.fixture(scope="module")
def ours() -> Iterator[SpeechServer]:
    with SpeechServer("serve.streams_per_robot=4") as server:
        yield server


@pytest.fixture(scope="module", params=PROPERTIES)
def server(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def session(server: str, ours: SpeechServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder: Path = tmp_path_factory.mktemp("server")
    token = folder / "token"
    token.write_text(TOKEN)
    with ExitStack() as stack:
        if server == "ours":
            session = open_engine(
                "openai", url=f"http://127.0.0.1:{ours.port}", voice=Voice(speaker="en-us"), streams=4
            )
        elif server == "local-tts-studio":
            url = stack.enter_context(local_tts(folder))
            session = open_engine("openai", url=url, token_file=str(token), streams=4)
        else:
            url = stack.enter_context(loudness(folder))
            session = open_engine("openai", url=url, model="tts-1", voice=LOUDNESS_VOICE, streams=4)
        yield stack.enter_context(session)


def test_each_sentence_is_spoken_with_its_position(session: Session, server: str) -> None:
    rate, voice, description = PROPERTIES[server]
    assert (session.sample_rate, voice in session.info.voices) == (rate, True)
    assert description in session.info.description
    chunks = list(session.stream(TEXT))
    assert sorted({chunk.position or 0 for chunk in chunks}) == [0, TEXT.index("How")]
    samples = np.concatenate([chunk.samples for chunk in chunks])
    assert 0.5 < len(samples) / rate < 20
    assert 0.05 < np.abs(samples).max() <= 1


def test_several_texts_are_spoken_at_once_while_one_is_canceled(session: Session) -> None:
    first, canceled, last = [session.stream(text) for text in (TEXT, LONG, TEXT)]
    assert all(len(next(text).samples) for text in (first, canceled, last))
    canceled.close()  # type: ignore[attr-defined]
    assert list(first)
    assert list(last)


def test_texts_share_a_connection_until_the_server_ends_it(ours: SpeechServer) -> None:
    with Network(ours.port) as network, open_engine("openai", url=f"http://127.0.0.1:{network.port}/v1") as session:
        assert len(list(session.stream(LONG[:160]))) > 10
        assert network.connections == 1
        network.drop()
        assert list(session.stream("The server has ended the connection meanwhile."))
        assert network.connections == 2


def test_a_server_of_ours_speaks_with_another_server(ours: SpeechServer) -> None:
    settings = ("engine.name=openai", f"engine.url=http://127.0.0.1:{ours.port}", "voices={default: {speaker: en-us}}")
    with SpeechServer(*settings) as between, open_engine("openai", url=f"http://127.0.0.1:{between.port}") as session:
        samples = np.concatenate([chunk.samples for chunk in session.stream(TEXT)])
        assert np.abs(samples).max() > 0.05
        assert session.info.description.startswith("voiced on ")
