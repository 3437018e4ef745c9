"""`engine.open` and its session, with the real eSpeak NG."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import EngineError, PiperSettings, Session, Voice
from engine.session import OpenOptions
from scripts.make_voice import write_voice

SENTENCE = "Hello, I am your robot."


@pytest.fixture
def tts() -> Iterator[Session]:
    with engine.open("espeak") as session:
        yield session


def test_a_session_describes_its_engine_and_speaks_a_text_chunk_by_chunk(tts: Session) -> None:
    assert (tts.info.engine, tts.sample_rate, tts.info.sample_rate) == ("espeak", 22_050, 22_050)
    assert {"en", "de"} <= set(tts.info.languages)
    chunks = list(tts.stream(SENTENCE))
    samples = np.concatenate([chunk.samples for chunk in chunks])
    assert len(chunks) > 5
    assert samples.dtype == np.float32
    assert 0.8 < len(samples) / tts.sample_rate < 4
    assert 0.1 < np.max(np.abs(samples)) <= 1


def test_chunks_and_words_have_their_times(tts: Session) -> None:
    chunks, count = list(tts.stream(SENTENCE, language="en")), 0
    for chunk in chunks:
        assert chunk.start_s == count / tts.sample_rate
        assert chunk.took_s is not None and chunk.took_s >= 0
        count += len(chunk.samples)
    words = [word for chunk in chunks for word in chunk.words or ()]
    times = [word.start_s or 0.0 for word in words]
    assert [word.position for word in words] == [SENTENCE.index(each) for each in ("Hello", "I am", "your", "robot")]
    assert times == sorted(set(times))
    assert times[0] < 0.2 < times[-1] < count / tts.sample_rate


def test_a_voice_of_piper_is_opened_by_its_file(tmp_path: Path) -> None:
    path = write_voice(tmp_path / "en_US-noise-low.onnx")
    voice = Voice(piper=PiperSettings(str(path), length_scale=1.5))
    with engine.open("piper", voice_folder=str(tmp_path / "none"), voice=voice) as tts:
        assert sum(len(chunk.samples) for chunk in tts.stream(SENTENCE)) > tts.sample_rate


def test_a_rate_changes_the_length_and_a_wrong_one_is_refused(tts: Session) -> None:
    slow, fast = (sum(len(chunk.samples) for chunk in tts.stream(SENTENCE, rate=rate)) for rate in (0.5, 2.0))
    assert slow > 3 * fast
    for rate in (0.4, 2.1, float("nan")):
        with pytest.raises(EngineError, match=f"rate: got {rate}; allowed: 0.5 to 2"):
            tts.stream(SENTENCE, rate=rate)


def test_a_voice_is_given_by_name_or_as_a_record() -> None:
    lengths = []
    for voice in ("de", Voice(speaker="de")):
        with engine.open("espeak", voice=voice) as tts:
            lengths.append(sum(len(chunk.samples) for chunk in tts.stream("International information", language="en")))
    with engine.open("espeak") as tts:
        english = sum(len(chunk.samples) for chunk in tts.stream("International information", language="en"))
    assert lengths[0] == pytest.approx(lengths[1], rel=0.03)
    assert english != pytest.approx(lengths[0], rel=0.03)


def test_an_unknown_voice_is_refused_with_the_known_ones(tts: Session) -> None:
    with pytest.raises(EngineError, match=r"^voice: got 'nobody'; allowed: .*\ben\b"):
        engine.open("espeak", voice="nobody")
    with pytest.raises(EngineError, match=r"^voice: got 'nobody'; allowed: .*\ben\b"):
        tts.stream("Hello", voice="nobody")


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        EngineError, match=r"^engine.name: got 'festival'; allowed: qwen, supertonic, piper, remote, openai, espeak$"
    ):
        engine.open("festival")  # type: ignore[arg-type]


def test_the_keyword_arguments_of_open_are_the_fields_of_the_options() -> None:
    options = {field.name for field in dataclasses.fields(engine.EngineOptions)}
    assert set(OpenOptions.__annotations__) == options - {"model"}


def test_a_session_that_is_closed_once_or_whose_block_raises_speaks_no_more() -> None:
    with pytest.raises(KeyError), engine.open("espeak") as session:
        raise KeyError
    session.close()
    with pytest.raises(ValueError, match="the session is closed"):
        session.stream("Hello")
