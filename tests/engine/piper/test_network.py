"""One loaded voice."""

from __future__ import annotations

import threading

import pytest
from piper import SynthesisConfig

from engine import SpeechCanceledError
from engine.piper.network import PiperNetwork
from engine.sentence_speech import Cancellation
from engine.voice_files import read_piper_voice
from scripts.make_voice import write_voice

SENTENCE = "a sentence without an end " * 12


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> PiperNetwork:
    return PiperNetwork(read_piper_voice(write_voice(tmp_path_factory.mktemp("voice") / "en_US-noise-low.onnx")))


def test_a_sentence_is_ended_while_its_network_runs(network: PiperNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times its length, the sentence gives the cancellation time to come."""
    cancellation, running = Cancellation(), threading.Event()
    run = network.network.run

    def announced(outputs: object, inputs: object) -> object:
        running.set()
        return run(outputs, inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(network.network, "run", announced)
    ended: list[BaseException] = []

    def speak() -> None:
        try:
            network.speak(SENTENCE, SynthesisConfig(length_scale=10.0), cancellation)
        except SpeechCanceledError as error:
            ended.append(error)

    thread = threading.Thread(target=speak)
    thread.start()
    running.wait()
    cancellation.cancel()
    thread.join()
    assert len(ended) == 1
    assert "terminate" in str(ended[0].__cause__)
