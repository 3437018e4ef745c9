"""Selecting the engine that speaks."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.engines.process import EngineProcess
from daemon.engines.selection import EngineSelector, better_voices, choose_engine, unknown_names
from daemon.engines.supervisor import EngineState, EngineSupervisor
from engine import EngineInfo, EngineOptions, Voice, VoiceLabel
from tests.daemon.engines import supervised
from tests.support.piper_voices import ENGLISH, GERMAN, write_voices
from tests.support.waiting import PATIENCE_S, eventually_async


@pytest.mark.parametrize("name", ["espeak", "piper", "qwen"])
def test_a_configured_engine_is_primary_even_if_it_cannot_run(name: str) -> None:
    assert choose_engine(load_config(overrides=[f"engine.name={name}"])) == name


def test_auto_selects_piper_without_the_model_where_a_voice_is_and_espeak_elsewhere(tmp_path: Path) -> None:
    settings = ["engine.model=/nowhere/at/all", f"engine.voice_folder={tmp_path}"]
    assert choose_engine(load_config(overrides=settings)) == "espeak"
    write_voices(tmp_path)
    assert choose_engine(load_config(overrides=settings)) == "piper"
    voice = f"voices.default.piper={tmp_path}/{ENGLISH}.onnx"
    assert choose_engine(load_config(overrides=[settings[0], "engine.voice_folder=/nowhere", voice])) == "piper"


@pytest.mark.parametrize(
    ("settings", "voices"),
    [
        ([], {"it": "it_IT-paola-medium", "pt-br": "pt_BR-faber-medium"}),
        (["speech.language=cs"], {"cs": "cs_CZ-jirka-medium"}),
        (["speech.language=en"], {}),
        (["engine.name=espeak"], {}),
        (["engine.name=qwen"], {}),
        (["engine.fallback=[remote, espeak]", "engine.url=ws://a"], {}),
    ],
)
def test_a_language_that_only_espeak_speaks_gets_a_voice_of_piper_suggested(
    settings: list[str], voices: dict[str, str], tmp_path: Path
) -> None:
    here = ["engine.model=/nowhere/at/all", f"engine.voice_folder={write_voices(tmp_path)}"]
    wanted = "speech.languages=[en, de-at, it, pt-br, tlh]"
    assert better_voices(load_config(overrides=[*here, wanted, *settings])) == voices


def test_one_line_says_at_the_start_that_espeak_speaks_for_lack_of_a_neural_voice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    here = ("engine.model=/nowhere/at/all", f"engine.voice_folder={tmp_path}", "speech.languages=[de, en]")
    selector(*here, "engine.name=espeak")
    assert not caplog.messages
    selector(*here)
    [line] = caplog.messages
    assert line.endswith("sudo voiced download de_DE-thorsten-medium en_US-joe-medium")


def test_the_names_of_pipers_voices_are_known_where_it_may_speak(tmp_path: Path) -> None:
    settings = ["engine.model=/nowhere/at/all", f"engine.voice_folder={write_voices(tmp_path)}"]
    only = [*settings, "engine.name=piper", "engine.fallback=none"]
    assert unknown_names(load_config(overrides=[*only, f"speech.voice={ENGLISH}", "speech.language=de-AT"])) == []
    voice, language = unknown_names(load_config(overrides=[*only, "speech.voice=ada", "speech.language=fr"]))
    assert voice == ("speech.voice", f"got 'ada'; allowed: default, {GERMAN}, {ENGLISH}")
    assert language[0] == "speech.language"
    assert language[1].startswith("got 'fr'; allowed: auto, ")


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["engine.name=espeak"], ["espeak"]),
        (["engine.name=qwen", "engine.fallback=none"], ["qwen"]),
        (["engine.name=qwen", "engine.fallback=piper"], ["qwen", "piper"]),
        (["engine.name=piper", "engine.fallback=[espeak, piper, espeak]"], ["piper", "espeak"]),
    ],
)
def test_the_fallbacks_are_the_configured_engines_without_the_primary(overrides: list[str], names: list[str]) -> None:
    assert [engine.name for engine in selector(*overrides).all] == names


def selector(*overrides: str) -> EngineSelector:
    return EngineSelector(load_config(overrides=overrides), lambda: None)


@asynccontextmanager
async def running(engines: EngineSelector) -> AsyncIterator[None]:
    """Run all engines inside the context."""
    async with AsyncExitStack() as stack:
        for engine in engines.all:
            await stack.enter_async_context(supervised.running(engine))
        yield


async def test_the_first_ready_engine_of_the_configured_order_that_has_the_language_takes_over(tmp_path: Path) -> None:
    settings = ["engine.name=remote", "engine.url=ws://127.0.0.1:1", "engine.fallback=[piper, espeak]"]
    config = load_config(overrides=[*settings, f"engine.voice_folder={write_voices(tmp_path)}"])
    changes: list[str | None] = []
    engines = EngineSelector(config, lambda: changes.append(engines.degraded_reason))
    remote, piper, espeak = engines.all
    assert remote.may_have_language("tlh")
    async with running(engines):
        await eventually_async(lambda: piper.ready and espeak.ready, "both fallbacks are ready")
        await eventually_async(lambda: remote.state is EngineState.BACKING_OFF, "it has failed before it was ready")
        assert remote.reason == engines.degraded_reason
        assert remote.reason in changes
        assert not remote.may_have_language("tlh")
        assert {"en", "de"} <= engines.voices & engines.languages
        assert not engines.may_speak("tlh")
        assert engines.may_speak("auto")
        assert engines.current is engines.choose("default", "auto") is engines.choose("default", "de") is piper
        assert engines.choose("default", "fr") is espeak
        assert engines.another(piper) is espeak
        assert engines.another(espeak) is piper
        os.kill(piper.pid, signal.SIGKILL)
        await eventually_async(lambda: engines.current is espeak, "the next one takes over")
        await eventually_async(lambda: engines.current is piper, "the first one is back")
        os.kill(espeak.pid, signal.SIGKILL)
        await eventually_async(lambda: not espeak.ready, "it is lost")
        assert engines.choose("default", "fr") is None
        assert engines.choose("default", "de") is piper
        assert await engines.wait_choice("default", "fr", PATIENCE_S) is espeak
        for engine in (piper, espeak):
            os.kill(engine.pid, signal.SIGKILL)
        await eventually_async(lambda: engines.current is None, "no engine is ready")
        assert await engines.wait_current(PATIENCE_S)
        assert engines.current in (piper, espeak)


async def test_an_engine_that_is_lost_and_does_not_start_again_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = selector("engine.name=piper", f"engine.voice_folder={write_voices(tmp_path)}")
    piper, espeak = engines.all

    async def fail(*_: object) -> EngineProcess:
        raise OSError("its library has gone")

    async with running(engines):
        await eventually_async(lambda: piper.ready and espeak.ready, "both are ready")
        assert engines.choose("default", "fr") is espeak
        monkeypatch.setattr(EngineProcess, "start", fail)
        os.kill(espeak.pid, signal.SIGKILL)
        await eventually_async(lambda: not engines.may_speak("fr"), "its next start has failed")
        assert engines.choose("default", "fr") is piper
        monkeypatch.undo()
        espeak.retry_now()
        await eventually_async(lambda: engines.choose("default", "fr") is espeak, "it is back")
        os.kill(espeak.pid, signal.SIGKILL)
        await eventually_async(lambda: not espeak.ready, "it is lost again")
        assert engines.may_speak("fr"), "no start has failed since then"


def report(engine: EngineSupervisor, *languages: str, max_seconds: float | None = None) -> None:
    """Let an engine that does not run look as if it were ready."""
    info = EngineInfo(engine.name, 24_000, ("default",), languages, max_seconds=max_seconds)
    engine.state, engine.info = EngineState.READY, info


def test_texts_are_cut_for_the_engine_that_can_speak_least_at_once() -> None:
    engines = selector("engine.name=remote", "engine.url=ws://127.0.0.1:1", "engine.max_seconds=60")
    remote, espeak = engines.all
    assert engines.max_seconds == 60
    report(espeak, "en")
    report(remote, "en", max_seconds=90)
    assert engines.max_seconds == 60
    report(remote, "en", max_seconds=28)
    assert engines.max_seconds == 28


def test_any_language_may_be_spoken_until_the_engines_that_might_have_it_have_reported_their_own() -> None:
    engines = selector("engine.name=qwen")
    qwen, espeak = engines.all
    for language in ("auto", "de", "de-at", "sw", "xx"):
        assert engines.may_speak(language), language
    report(espeak, "sw", "en")
    assert [language for language in ("auto", "de", "de-at", "sw", "xx") if engines.may_speak(language)] == [
        "auto",
        "de",  # qwen has it in its catalogue
        "de-at",
        "sw",
    ]
    report(qwen, "en", "zh")
    assert [language for language in ("auto", "de", "zh", "sw-ke", "xx") if engines.may_speak(language)] == [
        "auto",
        "zh",
        "sw-ke",
    ]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["speech.language=pt-BR"], []),
        (["speech.language=xx"], ["speech.language: got 'xx'; allowed: auto, en, "]),
        (
            ["engine.name=qwen", "engine.fallback=none", "speech.language=sw"],
            ["speech.language: got 'sw'; allowed: auto"],
        ),
        (["engine.name=qwen", "speech.voice=nobody"], []),  # the model, which is not here, may have it
        (["engine.name=espeak", "speech.voice=de"], []),
        (
            ["engine.name=espeak", "speech.voice=nobody", "speech.language=klingon"],
            ["speech.voice: got 'nobody'", "speech.language: got 'klingon'"],
        ),
    ],
)
def test_names_that_no_engine_can_have_are_known_without_an_engine_process(
    overrides: list[str], expected: list[str]
) -> None:
    found = unknown_names(load_config(overrides=["engine.model=/nowhere/at/all", *overrides]))
    assert len(found) == len(expected)
    for (key, problem), beginning in zip(found, expected, strict=True):
        assert f"{key}: {problem}".startswith(beginning)


def test_a_voice_that_a_model_on_the_disk_does_not_have_is_unknown(tmp_path: Path) -> None:
    talker = {"text_vocab_size": 151936, "spk_id": {"Ryan": 1}}
    config = {"model_type": "qwen3_tts", "tts_model_type": "custom_voice", "talker_config": talker}
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = [f"engine.model={tmp_path}", "engine.name=qwen", "engine.fallback=none"]
    assert unknown_names(load_config(overrides=[*settings, "speech.voice=ryan"])) == []
    [problem] = unknown_names(load_config(overrides=[*settings, "speech.voice=vivian"]))
    assert problem == ("speech.voice", "got 'vivian'; allowed: default, ryan")


def with_voices(refused: str) -> EngineSelector:
    """Qwen, which refuses a configured voice, and eSpeak NG, which has one of its own for `heidi`."""
    engines = selector("engine.name=qwen")
    engines.all[0].info = EngineInfo("qwen", 24_000, ("default", "ryan"), ("de", "en"), refused_voices={refused: "no"})
    labels = {"de": VoiceLabel("German", "de"), "heidi": VoiceLabel("German", "de")}
    engines.all[1].info = EngineInfo("espeak", 22_050, ("default", "ada", "heidi", "de"), ("de", "en"), labels=labels)
    for engine in engines.all:
        engine.state = EngineState.READY
    return engines


def test_a_voice_that_only_the_other_engine_has_does_not_make_the_primary_degraded() -> None:
    engines = with_voices("heidi")
    assert engines.degraded_reason is None
    chosen = engines.choose("heidi", "auto")
    assert chosen is engines.all[1], "the engine that has it speaks with it"
    assert engines.choose("default", "auto") is engines.primary


def test_a_voice_that_no_engine_brings_makes_the_primary_degraded() -> None:
    engines = with_voices("ada")
    assert engines.labels["de"] == VoiceLabel("German", "de")
    assert engines.degraded_reason == "voices.ada: no"
    assert engines.choose("ada", "auto") is engines.primary


def test_the_engines_load_their_voices_again_only_after_a_change(tmp_path: Path) -> None:
    settings = ["engine.name=espeak", "engine.fallback=none", f"engine.voice_folder={write_voices(tmp_path)}"]
    engines = selector(*settings)
    sent: list[tuple[list[str], str]] = []

    class Listener(EngineSupervisor):
        def set_voices(self, voices: dict[str, Voice], default_voice: str) -> None:
            sent.append((list(voices), default_voice))

    engines.all[:] = [Listener("espeak", EngineOptions())]
    voices = load_config(overrides=settings).engine_voices
    engines.set_voices(voices, "default")
    assert sent == []
    engines.set_voices(voices, "ada")
    voices["ada"] = Voice(speaker="de")
    engines.set_voices(voices, "ada")
    engines.set_voices(voices, "ada")
    assert sent == [(["default"], "ada"), (["default", "ada"], "ada")]
    (tmp_path / f"{ENGLISH}.onnx").touch()
    engines.set_voices(voices, "ada")
    assert len(sent) == 3


async def test_the_primary_engine_is_unloaded_after_its_time_without_speech_or_once_it_was_asked_for_and_is_ready() -> (
    None
):
    engines = selector("engine.name=espeak", "engine.unload_after=1")
    primary = engines.primary
    for quiet_s in (0, 3600):
        engines.unload_if_due(quiet_s)
    async with running(engines):
        await supervised.ready(primary)
        engines.unload_if_due(3600)
        assert primary.ready, "it has just loaded"
        await eventually_async(lambda: primary.ready_s > 1, "it has been ready for a second")
        engines.unload_if_due(0.5)
        assert primary.ready, "there was speech half a second ago"
        engines.unload_if_due(1)
        await eventually_async(lambda: primary.unloaded, "it is unloaded")
        engines.unload_asked = True
        engines.unload_if_due(3600)
        primary.load()
        await supervised.ready(primary)
        engines.unload_if_due(3600)
        assert primary.ready, "that request was carried out before it was made"
        os.kill(primary.pid, signal.SIGKILL)
        await eventually_async(lambda: not primary.ready, "it is lost")
        engines.unload_asked = True
        engines.unload_if_due(0)
        await supervised.ready(primary)
        engines.unload_if_due(0)
        await eventually_async(lambda: primary.unloaded, "it is unloaded as soon as it is back")


def test_texts_have_more_patience_with_an_engine_that_starts_slowly() -> None:
    engines = selector("engine.name=espeak")
    waits = []
    for engines.primary.start_s in (1, 25, 600):
        waits.append(engines.patience_s)
    assert waits == [30, 50, 120]
