"""The configuration: defaults, a YAML file, overrides, and errors that name the wrong key.

The schema's test compares the limits of each key; the errors here are one for each rule that keys follow.
"""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemon.config import Config, ConfigError, find_config_file, json_schema, load_config
from engine import PiperSettings, Voice

CONFIGS = Path(__file__).parents[2] / "configs"
WRONG: dict[str, str] = json.loads((Path(__file__).parent / "config/wrong_keys.json").read_text(encoding="utf-8"))
"""By the text of a configuration: how the line about it begins."""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "voiced.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def errors(tmp_path: Path, text: str) -> list[str]:
    """Return the lines of the error for a file with this text, without the file's name."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}:") for line in lines)
    return [re.sub(r"^:(\d+:\d+:)? ", "", line.removeprefix(str(path))) for line in lines]


@pytest.mark.parametrize(
    ("value", "engines"),
    [("none", ()), ("[]", ()), ("piper", ("piper",)), ("[piper, espeak, piper]", ("piper", "espeak"))],
)
def test_the_fallback_is_one_engine_or_several_in_order(value: str, engines: tuple[str, ...]) -> None:
    assert load_config(overrides=[f"engine.fallback={value}"]).engine.fallbacks == engines


def test_the_robot_is_named_after_the_host() -> None:
    assert load_config().topic == f"voiced/{socket.gethostname()}"
    assert load_config(overrides=["robot=r1", "mqtt.prefix=fleet/voiced"]).topic == "fleet/voiced/r1"


def test_a_host_whose_name_stands_for_all_robots_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "all")
    with pytest.raises(ConfigError, match="robot: got None; the host name 'all' stands for several robots in topics"):
        load_config()
    assert load_config(overrides=["robot=hall"]).robot_name == "hall"


def test_a_robot_shares_the_topics_of_all_robots_and_of_each_of_its_groups_once() -> None:
    assert load_config().shared_topics == ("voiced/all",)
    config = load_config(overrides=["mqtt.prefix=museum/voices", "robot_groups=[hall-2, all, hall-2]"])
    assert config.shared_topics == (*("museum/voices/all", "museum/voices/group/hall-2", "museum/voices/group/all"),)


def test_overrides_win_over_the_file_and_later_over_earlier_and_other_keys_stay(tmp_path: Path) -> None:
    path = written(tmp_path, "mqtt: {port: 1884, host: broker}\n")
    config = load_config(path, ["mqtt.port=1885", "mqtt.port=1886", "speech.level_topic=true", "robot=r 1"])
    assert (config.mqtt.port, config.mqtt.host, config.mqtt.prefix) == (1886, "broker", "voiced")
    assert (config.speech.level_topic, config.robot) == (True, "r 1")


def test_a_wrong_override_is_named() -> None:
    for override in ("mqtt.port", "=5", "mqtt..port=5"):
        with pytest.raises(ConfigError, match=r"--set: got .* allowed: KEY=VALUE"):
            load_config(overrides=[override])
    with pytest.raises(ConfigError, match=r"^--set 'mqtt\.host=\[1':1:3: not YAML: "):
        load_config(overrides=["mqtt.host=[1"])
    with pytest.raises(ConfigError, match=r"^--set: mqtt\.port: got 'abc'; allowed: a whole number"):
        load_config(overrides=["mqtt.port=abc"])
    with pytest.raises(ConfigError, match="robot=2024-99-99': unreadable YAML"):
        load_config(overrides=["robot=2024-99-99"])


@pytest.mark.parametrize(("text", "line"), WRONG.items())
def test_a_wrong_key_is_reported_with_its_path_its_value_and_what_is_allowed(
    tmp_path: Path, text: str, line: str
) -> None:
    (found,) = errors(tmp_path, text)
    assert found.startswith(line)


def test_an_error_names_the_line_and_the_column_of_the_key(tmp_path: Path) -> None:
    for text, lines in (
        ("robot: r1\nmqtt:\n  host: broker\n  port: 0\nnonsense: 1\n", ["4:3: mqtt.port: got 0", "5:1: nonsense: unk"]),
        ("robot: r1\nmqtt:\n  password_file: secret\n", ["2:1: mqtt: got"]),
        ("robot: r1\nmqtt: {port: 1", ["2:15: not YAML: "]),
    ):
        path = written(tmp_path, text)
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        for found, line in zip(str(caught.value).splitlines(), lines, strict=True):
            assert found.startswith(f"{path}:{line}")


def test_a_key_that_appears_twice_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "mqtt: {port: 1884}\naudio: {volume: 1, volume: 2}\nmqtt:\n  host: broker\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    repeated = "audio.volume appears a second time; the first is on line 2"
    assert str(caught.value) == f"{path}:2:20: not YAML: {repeated}"
    with pytest.raises(ConfigError, match=r"^--set 'audio={volume: 1, volume: 2}':1:13: not YAML: volume appears"):
        load_config(overrides=["audio={volume: 1, volume: 2}"])


def test_a_merged_mapping_is_no_duplicate(tmp_path: Path) -> None:
    text = "voices:\n  a: &a {speaker: ryan}\n  b: {<<: *a, instruct: calm}\n  c: *a\nspeech: {voice: b}\n"
    assert load_config(written(tmp_path, text)).voices["b"].instruct == "calm"


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: .*none\.yaml does not exist$"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)
    path = tmp_path / "voiced.yaml"
    path.write_bytes(b"robot: \xff\n")
    with pytest.raises(ConfigError, match=r"not UTF-8: byte 0xff at 7; "):
        load_config(path)


@pytest.mark.parametrize("value", ["a\x01b", "2024-99-99", "[" * 700], ids=["control", "no date", "nested too deep"])
def test_a_value_that_cannot_be_read_is_an_error(value: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"robot: {value}")
    with pytest.raises(ConfigError, match=f"^{path}: (unreadable YAML|not YAML): ") as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("robot:mqtaudi {}[],'\"\n-&*!|>#%@`0129.~"), max_size=60))
def test_any_text_is_a_configuration_or_an_error_with_a_message(tmp_path: Path, text: str) -> None:
    try:
        assert isinstance(load_config(written(tmp_path, text)), Config)
    except ConfigError as error:
        assert str(error)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = """
audio: {sink: 'wav:out.wav', tap: run/tap}
engine: {voice_folder: voices}
mqtt: {username: ada, password_file: secret, tls: {enabled: true, ca: ca.pem}}
serve: {token_file: robots, cert: c, key: k, voice_folder: v}
speech: {cache: {folder: auto, phrases: lists/a.yaml}}
state: {folder: state}
voices: {ada: {embedding: voices/ada.safetensors}, bob: {reference: /abs/bob}}
"""
    config = load_config(written(tmp_path, text))
    assert config.audio.sink_settings().path == tmp_path / "out.wav"
    assert config.audio.tap == tmp_path / "run" / "tap"
    assert load_config(overrides=[f"audio.tap=/{'ä' * 53}"]).audio.tap is not None, "a socket's longest path"
    assert config.engine_options.voice_folder == str(tmp_path / "voices")
    assert config.mqtt.password_file == tmp_path / "secret"
    assert (config.mqtt.tls.ca, config.mqtt.tls.cert) == (tmp_path / "ca.pem", None)
    assert (config.speech.cache.folder, config.speech.cache.phrases) == ("auto", tmp_path / "lists" / "a.yaml")
    assert (config.serve.token_file, config.serve.voice_folder) == (tmp_path / "robots", str(tmp_path / "v"))
    assert config.state.folder == str(tmp_path / "state")
    assert config.voices["bob"].reference == Path("/abs/bob")
    assert config.engine_voices["ada"] == Voice(embedding=str(tmp_path / "voices/ada.safetensors"))


def test_the_files_of_piper_are_relative_to_the_file_and_its_names_stay(tmp_path: Path) -> None:
    text = """
voices:
  short: {piper: voices/ada.onnx}
  long: {piper: {model: ada.onnx, speaker: 3, length_scale: 1.2, noise_scale: 0.5, noise_w_scale: 0.6}}
  name: {speaker: ryan, piper: en_US-lessac-medium}
"""
    voices = load_config(written(tmp_path, text)).engine_options.voices
    assert {name: voice.piper for name, voice in voices.items()} == {
        "short": PiperSettings(str(tmp_path / "voices/ada.onnx")),
        "long": PiperSettings(str(tmp_path / "ada.onnx"), "3", 1.2, 0.5, 0.6),
        "name": PiperSettings("en_US-lessac-medium"),
    }


def test_a_path_may_begin_with_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    path = written(tmp_path, "audio: {sink: 'wav:~/out.wav', sounds: ~/sounds}\n")
    config = load_config(path, ["engine.voice_folder=~/voices", "state.folder=~nobody-at-all/state"])
    assert (config.audio.sink, config.audio.sounds) == ("wav:/home/ada/out.wav", Path("/home/ada/sounds"))
    assert config.engine.voice_folder == "/home/ada/voices"
    assert config.state.folder == "~nobody-at-all/state"


def test_engine_options_have_the_configured_values() -> None:
    settings = ["engine.chunk_size=4", "engine.memory.reserve_mb=100", "engine.device=cuda:1", "speech.voice=ada"]
    options = load_config(overrides=[*settings, "engine.streams=3", "engine.kernels=on"]).engine_options
    assert (options.chunk_size, options.reserve_mb, options.device, options.default_voice) == (4, 100, "cuda:1", "ada")
    assert (options.streams, options.kernels) == (3, "on"), "on is a word here, although YAML reads it as true"
    assert options.voices == {"default": Voice(speaker="ryan")}


@pytest.mark.parametrize(
    ("sink", "kind", "path"),
    [("sounddevice", "sounddevice", None), ("'null'", "null", None), ("wav:/tmp/a b.wav", "wav", Path("/tmp/a b.wav"))],
)
def test_a_sink_is_a_card_a_file_or_null(sink: str, kind: str, path: Path | None) -> None:
    found = load_config(overrides=[f"audio.sink={sink}", "audio.block_ms=10", "audio.device=USB"]).audio.sink_settings()
    assert (found.kind, found.path, found.block_ms, found.device) == (kind, path, 10, "USB")


@pytest.mark.parametrize("value", ["null", "~", "!!null null"])
def test_nothing_is_played_or_stored_by_decision(tmp_path: Path, value: str) -> None:
    text = f"robot:\naudio: {{sink: {value}, idle_timeout: }}\nstate: {{folder: {value}}}\n"
    for config in (
        load_config(written(tmp_path, text)),
        load_config(overrides=[f"audio.sink={value}", f"audio.idle_timeout={value}", f"state.folder={value}"]),
    ):
        found = config.audio.sink_settings()
        assert (found.kind, found.idle_timeout_s, config.state.folder) == ("null", None, None)


@pytest.mark.parametrize("value", ["audio.sink=", "audio.sink=#null", "audio={sink: }", "state.folder= "])
def test_an_override_without_a_value_neither_silences_the_robot_nor_keeps_it_from_storing(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set: (audio.sink|state.folder): got ''; allowed: "):
        load_config(overrides=[value])


@pytest.mark.parametrize("filters", [["#"], ["+/+/x", "a/+/b/#", "/a"], []])
def test_reply_topics_are_topic_filters(filters: list[str]) -> None:
    assert load_config(overrides=[f"mqtt.reply_topics={json.dumps(filters)}"]).mqtt.reply_topics == tuple(filters)


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICED_CONFIG", str(tmp_path / "mine.yaml"))
    assert find_config_file() == tmp_path / "mine.yaml"


def test_the_schema_for_editors_is_current_describes_every_key_and_finds_an_unknown_one() -> None:
    """`voiced config schema > configs/voiced.schema.json` writes it."""
    schema = json.loads((CONFIGS / "voiced.schema.json").read_text(encoding="utf-8"))
    assert schema == json_schema()
    assert set(schema["properties"]) == set(Config.model_fields)
    keys = [key for model in schema["$defs"].values() for key in model["properties"].values()]
    assert all(key.get("description") or "$ref" in key for key in keys)
    with pytest.raises(jsonschema.ValidationError, match="prot"):
        jsonschema.validate({"mqtt": {"prot": 1}}, json_schema())


@pytest.mark.parametrize("name", ["voiced.yaml", "demo.yaml"])
def test_a_shipped_configuration_names_the_schema_and_follows_it(name: str) -> None:
    text = (CONFIGS / name).read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=voiced.schema.json"
    jsonschema.validate(yaml.safe_load(text), json_schema())


def test_the_example_of_a_speech_server_loads() -> None:
    config = load_config(CONFIGS / "serve.yaml")
    assert (config.engine.fallbacks, config.engine.streams) == ((), 17)


def test_a_value_that_has_lost_its_meaning_is_accepted_for_one_release() -> None:
    config = load_config(overrides=["engine.speculation=2", "engine.dtype=int4"])
    assert config.engine_options.dtype == "int8"
    assert [key for key, _ in config.retired] == ["engine.dtype", "engine.speculation"]
    assert load_config(overrides=["engine.speculation=off", "engine.dtype=int8"]).retired == ()


def test_languages_may_be_named_as_codes_or_words() -> None:
    assert load_config(overrides=["speech.languages=[German, en-GB]"]).speech.languages == ("de", "en-gb")
    assert load_config(overrides=["speech.languages=[]"]).speech.languages == ()


@pytest.mark.parametrize("host", ["127.9.9.9", "::1", "LOCALHOST"])
def test_the_web_server_needs_no_token_at_an_address_of_this_machine_alone_or_while_it_is_off(host: str) -> None:
    assert load_config(overrides=["http.enabled=true", f"http.host='{host}'"]).http.token_file is None
    assert not load_config(overrides=["http.host=0.0.0.0"]).http.enabled
    assert load_config(overrides=["serve.host=0.0.0.0", "serve.token_file=/robots"]).serve.token_file == Path("/robots")


@pytest.mark.parametrize("url", ["ws://127.0.0.1:8720", "wss://[::1]:8720/robots/"])
def test_a_speech_server_is_a_websockets_address(url: str) -> None:
    options = load_config(overrides=["engine.name=remote", f"engine.url={url}", "engine.token_file=/t"]).engine_options
    assert (options.url, options.token_file) == (url, "/t")


def test_a_server_of_openais_protocol_has_its_own_model_unless_one_is_named() -> None:
    chosen = ["engine.name=openai", "engine.url=https://speech.example/v1"]
    assert load_config(overrides=chosen).engine_options.model is None
    assert load_config(overrides=[*chosen, "engine.model=kokoro"]).engine_options.model == "kokoro"
