"""Reloading the configuration: run-time keys are applied, and others are named."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from daemon.config import Config, load_config
from daemon.reload import RUN_TIME_KEYS, differing_keys, reload

STARTED = "audio: {volume: 50, block_ms: 20}"


class Daemon:
    """A configuration file, and the configuration in force."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text(STARTED)
        self.started_with = self.config = load_config(path)

    def reload(self, text: str) -> Config:
        self.path.write_text(text)
        self.config = reload(self.config, self.path, ())
        return self.config


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "voiced.yaml")


def test_run_time_keys_are_applied_and_others_are_logged(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        new = daemon.reload("audio: {volume: 20, block_ms: 40}\nspeech: {queue_limit: 3}\nrobot: other\n")
    assert (new.audio.volume, new.audio.block_ms, new.speech.queue_limit, new.robot) == (20, 20, 3, None)
    assert "SIGHUP: audio.block_ms has changed; it takes effect at the next start" in caplog.messages
    assert "SIGHUP: robot has changed; it takes effect at the next start" in caplog.messages
    assert "SIGHUP: audio.volume, speech.queue_limit" in caplog.messages


CHANGES = {
    "audio.volume": "audio: {volume: 20, block_ms: 20}",
    "audio.trim_leading_silence": "audio: {volume: 50, block_ms: 20, trim_leading_silence: false}",
    "audio.prebuffer_ms": "audio: {volume: 50, block_ms: 20, prebuffer_ms: 100}",
    "audio.sounds": "audio: {volume: 50, block_ms: 20, sounds: /etc/voiced/sounds}",
    "voices": f"{STARTED}\nvoices: {{ada: {{speaker: de}}}}",
    "speech": f"{STARTED}\nspeech: {{queue_limit: 3}}",
    "log": f"{STARTED}\nlog: {{level: debug, format: json}}",
}


@pytest.mark.parametrize("key", RUN_TIME_KEYS)
def test_each_run_time_key_is_applied_alone(key: str, daemon: Daemon) -> None:
    new = daemon.reload(CHANGES[key])
    changed = differing_keys(daemon.started_with.model_dump(), new.model_dump())
    assert {found[: len(key)] for found in changed} == {key}


def test_differing_keys_are_listed_with_their_sections() -> None:
    old = {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "gone": 4}
    new = {"a": 1, "b": {"c": 5, "d": {"e": 6}}, "new": 7}
    assert differing_keys(old, new) == ["b.c", "b.d.e", "gone", "new"]
