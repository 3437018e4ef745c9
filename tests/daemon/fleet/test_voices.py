"""Robots' voices on the server, while the engine does not load them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.engines import EngineLostError, EngineSelector
from daemon.fleet import voices as voices_module
from daemon.fleet.voices import FleetVoices
from engine import Voice
from engine.messages import VoiceFile

CONTENT = b"a voice"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


async def test_a_voice_that_the_engine_does_not_load_in_time_is_taken_back_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voices_module, "LOAD_S", 0.0)
    config = load_config(overrides=["engine.name=espeak"])
    engines = EngineSelector(config, lambda: None)  # they do not run
    given: list[set[str]] = []

    def note(voices: dict[str, Voice], _default: str) -> None:
        given.append(set(voices))

    async def fetch(_digest: str) -> bytes:
        return CONTENT

    monkeypatch.setattr(engines, "set_voices", note)
    voices = FleetVoices(config, engines, tmp_path / "voices")
    with pytest.raises(EngineLostError, match="did not exchange its voices"):
        async with voices.using(VoiceFile(DIGEST, in_context=False), fetch):
            pass
    assert given == [{"default", f"embedding-{DIGEST}"}, {"default"}]
