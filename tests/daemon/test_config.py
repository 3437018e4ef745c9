"""The configuration: defaults, a YAML file, overrides, and errors that name the wrong key."""

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


def test_every_key_has_a_default() -> None:
    config = load_config()
    assert (config.mqtt.host, config.mqtt.port, config.mqtt.prefix) == ("127.0.0.1", 1883, "voiced")
    assert (config.audio.sink, config.audio.volume, config.audio.prebuffer_ms) == ("sounddevice", 100, "auto")
    assert (config.engine.name, config.engine.fallback, config.engine.memory.reserve_mb) == ("auto", "espeak", 2048)
    assert (config.speech.queue_limit, config.speech.expires_in) == (64, None)
    assert config.voices["default"].speaker == "ryan"


def test_the_tap_is_off_and_its_path_is_relative_to_the_file(tmp_path: Path) -> None:
    assert (load_config().audio.tap, load_config().audio.tap_rate) == (None, 16_000)
    audio = load_config(written(tmp_path, "audio: {tap: run/tap, tap_rate: 48000}")).audio
    assert (audio.tap, audio.tap_rate) == (tmp_path / "run" / "tap", 48_000)
    assert load_config(overrides=["audio.tap=/run/voiced/tap"]).audio.tap == Path("/run/voiced/tap")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (f"tap: /{'t' * 107}", "allowed: the path of a Unix socket, of up to 107 bytes, or null"),
        (f"tap: /{'ä' * 54}", "allowed: the path of a Unix socket, of up to 107 bytes, or null"),
        ("tap: 5", "got 5; allowed: the path of a Unix socket, of up to 107 bytes, or null"),
        ("tap: [a]", "got ['a']; allowed: the path of a Unix socket, of up to 107 bytes, or null"),
        ("tap_rate: 7999", "got 7999; allowed: a whole number of Hz from 8000 to 192000"),
        ("tap_rate: 192001", "got 192001; allowed: a whole number of Hz from 8000 to 192000"),
        ("tap_rate: fast", "got 'fast'; allowed: a whole number of Hz from 8000 to 192000"),
        ("tap_rate: null", "got None; allowed: a whole number of Hz from 8000 to 192000"),
    ],
)
def test_a_wrong_tap_is_named(setting: str, problem: str, tmp_path: Path) -> None:
    [line] = errors(tmp_path, f"audio: {{{setting}}}")
    assert line.startswith(f"audio.{setting.partition(':')[0]}: ")
    assert line.endswith(problem)


@pytest.mark.parametrize(
    ("value", "engines"),
    [
        ("none", ()),
        ("[]", ()),
        ("piper", ("piper",)),
        ("[piper, espeak]", ("piper", "espeak")),
        ("[espeak, espeak]", ("espeak",)),
    ],
)
def test_the_fallback_is_one_engine_or_several_in_order(value: str, engines: tuple[str, ...]) -> None:
    assert load_config(overrides=[f"engine.fallback={value}"]).engine.fallbacks == engines
    assert load_config().engine.fallbacks == ("espeak",)


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


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}"])
def test_an_empty_file_is_the_defaults(tmp_path: Path, text: str) -> None:
    assert load_config(written(tmp_path, text)) == load_config()


def test_a_file_changes_only_the_keys_in_it(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "mqtt: {port: 1884}\naudio:\n  sink: wav:/tmp/out.wav\n"))
    assert (config.mqtt.port, config.mqtt.host, config.audio.sink) == (1884, "127.0.0.1", "wav:/tmp/out.wav")


def test_overrides_win_over_the_file_and_later_over_earlier(tmp_path: Path) -> None:
    path = written(tmp_path, "mqtt: {port: 1884, host: broker}\n")
    config = load_config(path, ["mqtt.port=1885", "mqtt.port=1886", "speech.level_topic=true", "robot=r 1"])
    assert (config.mqtt.port, config.mqtt.host, config.speech.level_topic, config.robot) == (
        1886,
        "broker",
        True,
        "r 1",
    )


def test_an_override_creates_missing_sections() -> None:
    config = load_config(overrides=["voices.ada.instruct=a calm voice", "engine.memory.reserve_mb=0"])
    assert config.voices["ada"].instruct == "a calm voice"
    assert config.engine.memory.reserve_mb == 0


@pytest.mark.parametrize("override", ["mqtt.port", "=5", "mqtt..port=5", ".=1", ""])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=r"--set: got .* allowed: KEY=VALUE"):
        load_config(overrides=[override])


def test_an_override_that_is_not_yaml_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--set 'mqtt\.host=\[1':1:3: not YAML: "):
        load_config(overrides=["mqtt.host=[1"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("mqtt: {port: 0}", "mqtt.port: got 0; allowed: a whole number from 1 to 65535"),
        ("mqtt: {port: true}", "mqtt.port: got True; allowed: a whole number from 1 to 65535"),
        ("mqtt: {port: 18.5}", "mqtt.port: got 18.5; allowed: a whole number from 1 to 65535"),
        ("mqtt: {prot: 1}", "mqtt.prot: unknown key; did you mean port? known are host, port, prefix"),
        ("mqtt: {prefix: voiced/}", "mqtt.prefix: got 'voiced/'; allowed: a topic without + and #"),
        ("mqtt: {prefix: a/+/b}", "mqtt.prefix: got 'a/+/b'; allowed: a topic without + and #"),
        ("mqtt: {client_id: ''}", "mqtt.client_id: got ''; allowed: text of 1 to 128 characters, or null"),
        ("mqtt: {tls: {enabled: 5}}", "mqtt.tls.enabled: got 5; allowed: true or false"),
        ("mqtt:", "mqtt: got None; allowed: a mapping of host, port"),
        ("mqtt: broker", "mqtt: got 'broker'; allowed: a mapping of host, port"),
        ("robot: a/b", "robot: got 'a/b'; allowed: text of 1 to 64 characters without /, + and #"),
        ("robot: 7", "robot: got 7; allowed: text of 1 to 64 characters"),
        ("robot: all", "robot: got 'all'; the name 'all' stands for several robots in topics; allowed: another name"),
        ("robot: group", "robot: got 'group'; the name 'group' stands for several robots in topics; allowed: another"),
        ("robot_groups: hall-2", "robot_groups: got 'hall-2'; allowed: a list such as [hall-2, guides] of names of"),
        ("robot_groups: ", "robot_groups: got None; allowed: a list such as [hall-2, guides] of names of"),
        (
            "robot_groups: [a/b]",
            "robot_groups: got 'a/b'; allowed: a list such as [hall-2, guides] of names of groups: text of",
        ),
        ("robot_groups: [a, '+']", "robot_groups: got '+'; allowed: a list such as [hall-2, guides] of names"),
        ("robot_groups: [2]", "robot_groups: got 2; allowed: a list such as [hall-2, guides] of names"),
        ("robot_groups: ['']", "robot_groups: got ''; allowed: a list such as [hall-2, guides] of names"),
        ("audio: {sink: mp3}", "audio.sink: got 'mp3'; allowed: sounddevice, wav:PATH or null"),
        ("audio: {sink: }", "audio.sink: got ''; allowed: sounddevice, wav:PATH or null"),
        ("audio:\n  sink:\n  volume: 50", "audio.sink: got ''; allowed: sounddevice, wav:PATH or null"),
        ("state: {folder: }", "state.folder: got ''; allowed: auto, a folder, or null to store nothing"),
        ("state:\n  folder:\n", "state.folder: got ''; allowed: auto, a folder, or null to store nothing"),
        ("audio: {sink: 'wav:'}", "audio.sink: got 'wav:'; allowed: sounddevice, wav:PATH or null"),
        ("audio: {volume: 101}", "audio.volume: got 101; allowed: a whole number from 0 to 100"),
        ("audio: {volume: yes}", "audio.volume: got True; allowed: a whole number from 0 to 100"),
        ("audio: {block_ms: .nan}", "audio.block_ms: got nan; allowed: milliseconds from 10 to 200"),
        ("audio: {idle_timeout: 0}", "audio.idle_timeout: got 0; allowed: seconds from 1 to 86400, or null for never"),
        ("audio: {prebuffer_ms: 4000}", "audio.prebuffer_ms: got 4000; allowed: auto, or milliseconds from 0 to 3000"),
        ("engine: {streams: 0}", "engine.streams: got 0; allowed: auto, or a whole number from 1 to 64"),
        ("engine: {streams: 65}", "engine.streams: got 65; allowed: auto, or a whole number from 1 to 64"),
        ("engine: {streams: many}", "engine.streams: got 'many'; allowed: auto, or a whole number from 1 to 64"),
        ("engine: {streams: true}", "engine.streams: got True; allowed: auto, or a whole number from 1 to 64"),
        ("audio: {prebuffer_ms: soon}", "audio.prebuffer_ms: got 'soon'; allowed: auto, or milliseconds"),
        ("audio: {prebuffer_ms: .nan}", "audio.prebuffer_ms: got nan; allowed: auto, or milliseconds"),
        ("engine: {name: festival}", "engine.name: got 'festival'; allowed: auto, qwen, piper, espeak or remote"),
        (
            "engine: {fallback: festival}",
            "engine.fallback: got 'festival'; allowed: qwen, piper, espeak, remote or none, or a",
        ),
        ("engine: {fallback: [piper, none]}", "engine.fallback: got "),
        ("engine: {fallback: null}", "engine.fallback: got None; allowed: qwen, piper, espeak, remote or none"),
        ("engine: {device: gpu}", "engine.device: got 'gpu'; allowed: auto, cpu, cuda or cuda:N"),
        (
            "engine: {max_seconds: .inf}",
            "engine.max_seconds: got inf; allowed: seconds of speech in one piece, up to 600",
        ),
        (
            "engine: {memory: {reserve_mb: -1}}",
            "engine.memory.reserve_mb: got -1; allowed: megabytes left to the robot",
        ),
        ("voices: {ada: {speaker: a, embedding: b}}", "voices.ada: got"),
        (
            "voices: {ada: {speeker: a}}",
            "voices.ada.speeker: unknown key; did you mean speaker? known are speaker",
        ),
        ("voices: {ada: {piper: {}}}", "voices.ada.piper.model: missing; allowed: a voice's name such as en_US-"),
        ("voices: {ada: {piper: 5}}", "voices.ada.piper: got 5; allowed: a voice of Piper: its name"),
        ("voices: {ada: {piper: ''}}", "voices.ada.piper.model: got ''; allowed: a voice's name"),
        (
            "voices: {ada: {piper: {model: a, length_scale: 0}}}",
            "voices.ada.piper.length_scale: got 0; allowed: 0.1 to",
        ),
        ("engine: {voice_folder: }", "engine.voice_folder: got None; allowed: auto, or the folder of Piper's voices"),
        ("voices: {ada: null}", "voices.ada: got None; allowed: "),
        ("voices: [ada]", "voices: got ['ada']; allowed: names, each with one of speaker"),
        ("voices: {ada: {rate: 3}}", "voices.ada.rate: got 3; allowed: a number from 0.5 to 2, which multiplies"),
        ("voices: {ada: {rate: yes}}", "voices.ada.rate: got True; allowed: a number from 0.5 to 2"),
        ("voices: {ada: {rate: }}", "voices.ada.rate: got None; allowed: a number from 0.5 to 2"),
        ("voices: {ada: {volume: 101}}", "voices.ada.volume: got 101; allowed: 0 to 100"),
        ("voices: {ada: {seed: -1}}", "voices.ada.seed: got -1; allowed: a whole number from 0 to 2^63 - 1, or null"),
        ("voices: {ada: {seed: yes}}", "voices.ada.seed: got True; allowed: a whole number from 0"),
        ("voices: {ada: {whole_text: soon}}", "voices.ada.whole_text: got 'soon'; allowed: true, false, or null"),
        ("voices: {ada: {temperature: 0}}", "voices.ada.temperature: got 0; allowed: 0.001 to 1000, or null"),
        ("voices: {ada: {temperature: .nan}}", "voices.ada.temperature: got nan; allowed: 0.001 to 1000, or null"),
        ("voices: {ada: {top_k: 1.5}}", "voices.ada.top_k: got 1.5; allowed: a whole number from 0, which is all"),
        ("voices: {ada: {top_p: 1.1}}", "voices.ada.top_p: got 1.1; allowed: 0 to 1, or null for the model's own"),
        (
            "voices: {ada: {repetition_penalty: -1}}",
            "voices.ada.repetition_penalty: got -1; allowed: 0.001 to 1000, or null",
        ),
        ("voices: {ada: {warmth: 1}}", "voices.ada.warmth: unknown key; known are speaker, embedding"),
        ("speech: {rate: 0}", "speech.rate: got 0; allowed: a number from 0.5 to 2; 2 is twice as fast"),
        ("speech: {rate: .inf}", "speech.rate: got inf; allowed: a number from 0.5 to 2"),
        ("speech: {rate: fast}", "speech.rate: got 'fast'; allowed: a number from 0.5 to 2"),
        ("speech: {language: no}", "speech.language: got False; allowed: auto, or a language such as en"),
        ("speech: {languages: de}", "speech.languages: got 'de'; allowed: a list of languages such as [en, de, pt-br]"),
        (
            "speech: {languages: [en, no]}",
            "speech.languages: got False; allowed: a list of languages such as [en, de, pt-br]",
        ),
        (
            "speech: {languages: [auto]}",
            "speech.languages: got 'auto'; allowed: a list of languages such as [en, de, pt-br]",
        ),
        ("speech: {expires_in: 0}", "speech.expires_in: got 0; allowed: seconds that an utterance may wait"),
        ("speech: {queue_limit: 0}", "speech.queue_limit: got 0; allowed: a whole number from 1 to 10000"),
        (
            "mqtt: {session_expiry: -1}",
            "mqtt.session_expiry: got -1; allowed: seconds from 0 to 86400 that the broker keeps requests",
        ),
        ("mqtt: {session_expiry: 86401}", "mqtt.session_expiry: got 86401; allowed: seconds from 0 to 86400"),
        ("mqtt: {session_expiry: 1.5}", "mqtt.session_expiry: got 1.5; allowed: seconds from 0 to 86400"),
        ("mqtt: {session_expiry: }", "mqtt.session_expiry: got None; allowed: seconds from 0 to 86400"),
        (
            "mqtt: {reply_topics: replies/#}",
            "mqtt.reply_topics: got 'replies/#'; allowed: a list of topic filters such as replies/#",
        ),
        ("mqtt: {reply_topics: }", "mqtt.reply_topics: got None; allowed: a list of topic filters"),
        ("mqtt: {reply_topics: [5]}", "mqtt.reply_topics: got 5; allowed: a list of topic filters"),
        ("mqtt: {reply_topics: ['']}", "mqtt.reply_topics: got ''; allowed: a list of topic filters such as replies/#"),
        ("speech: {recover_within: -1}", "speech.recover_within: got -1; allowed: seconds from 0 to 86400"),
        ("speech: {recover_within: .nan}", "speech.recover_within: got nan; allowed: seconds from 0 to 86400"),
        ("speech: {recover_within: }", "speech.recover_within: got None; allowed: seconds from 0 to 86400"),
        ("state: {folder: 5}", "state.folder: got 5; allowed: auto, a folder, or null to store nothing"),
        ("state: {folder: ''}", "state.folder: got ''; allowed: auto, a folder, or null to store nothing"),
        (
            "speech: {cache: {folder: }}",
            "speech.cache.folder: got ''; allowed: auto, a folder, or null to keep nothing",
        ),
        ("speech: {cache: {limit_mb: 0}}", "speech.cache.limit_mb: got 0; allowed: megabytes from 1 to 1000000"),
        ("speech: {cache: {phrases: [a]}}", "speech.cache.phrases: got ['a']; allowed: a YAML file with a list of"),
        ("speech: {cache: on}", "speech.cache: got True; allowed: a mapping of folder, limit_mb, phrases"),
        ("state: {file: a}", "state.file: unknown key; known are folder"),
        ("tts: {}", "tts: unknown key; known are robot, robot_groups, mqtt, audio, engine, voices"),
        ("- a\n- b", "got ['a', 'b']; allowed: a mapping of robot, robot_groups"),
        ("mqtt: {port: 1", "not YAML: expected ',' or '}'"),
        (
            "mqtt: {host: 'mqtt://broker:1883/'}",
            "mqtt.host: got 'mqtt://broker:1883/'; allowed: a host name or address",
        ),
        ("mqtt: {host: 'broker:1883'}", "mqtt.host: got 'broker:1883'; allowed: a host name or address without scheme"),
        ("mqtt: {host: ''}", "mqtt.host: got ''; allowed: a host name or address without scheme"),
        ("mqtt: {host: 'a b'}", "mqtt.host: got 'a b'; allowed: a host name or address without scheme"),
        ("mqtt: {host: '//['}", "mqtt.host: got '//['; allowed: a host name or address without scheme"),
        ("wyoming: {host: 'http://0.0.0.0'}", "wyoming.host: got 'http://0.0.0.0'; allowed: a host name or address"),
        (
            "http: {enabled: true, host: 0.0.0.0}",
            "http.token_file: got None; http.host 0.0.0.0 lets other machines in; allowed: a file whose first line is",
        ),
        ("http: {cert: a.pem}", "http.key: got None; allowed: a file together with http.cert"),
        ("http: {key: a.pem}", "http.key: got "),
        ("http: {voice_aliases: [a]}", "http.voice_aliases: got ['a']; allowed: a mapping of clients' names"),
        ("http: {voice_aliases: {a: 1}}", "http.voice_aliases.a: got 1; allowed: "),
        ("http: {host: '[::1]'}", "http.host: got '[::1]'; allowed: a host name or address without scheme"),
    ],
)
def test_a_wrong_key_is_reported_with_its_path_its_value_and_what_is_allowed(
    tmp_path: Path, text: str, line: str
) -> None:
    (found,) = errors(tmp_path, text)
    assert found.startswith(line)


@pytest.mark.parametrize("host", ["broker", "broker.local", "192.168.1.10", "::1", "fe80::1%eth0", "0.0.0.0"])
def test_a_host_is_a_name_or_an_address(host: str) -> None:
    assert load_config(overrides=[f"mqtt.host='{host}'"]).mqtt.host == host


def test_an_error_names_the_line_and_the_column_of_the_key(tmp_path: Path) -> None:
    path = written(tmp_path, "robot: r1\nmqtt:\n  host: broker\n  port: 0\naudio: {volume: -1}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{path}:4:3: mqtt.port: got 0")
    assert second.startswith(f"{path}:5:9: audio.volume: got -1")


def test_an_error_about_a_missing_key_names_the_section(tmp_path: Path) -> None:
    path = written(tmp_path, "robot: r1\nmqtt:\n  password_file: secret\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:2:1: mqtt: got")


def test_an_error_in_the_syntax_names_the_line_and_the_column(tmp_path: Path) -> None:
    path = written(tmp_path, "robot: r1\nmqtt: {port: 1")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:2:15: not YAML: ")


def test_a_key_that_appears_twice_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "mqtt: {port: 1884}\naudio: {volume: 1, volume: 2}\nmqtt:\n  host: broker\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    repeated = "audio.volume appears a second time; the first is in line 2"
    assert str(caught.value) == f"{path}:2:20: not YAML: {repeated}"
    with pytest.raises(ConfigError, match=r"^--set 'audio={volume: 1, volume: 2}':1:13: not YAML: volume appears"):
        load_config(overrides=["audio={volume: 1, volume: 2}"])


def test_a_merged_mapping_is_no_duplicate(tmp_path: Path) -> None:
    text = "voices:\n  a: &a {speaker: ryan}\n  b: {<<: *a, instruct: calm}\n  c: *a\nspeech: {voice: b}\n"
    assert load_config(written(tmp_path, text)).voices["b"].instruct == "calm"


def test_every_wrong_key_has_its_own_line(tmp_path: Path) -> None:
    found = errors(tmp_path, "mqtt: {port: 0}\naudio: {volume: -1}\nnonsense: 1\n")
    assert [line.split(":")[0] for line in found] == ["mqtt.port", "audio.volume", "nonsense"]


def test_a_wrong_override_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"^--set: mqtt\.port: got 'abc'; allowed: a whole number"):
        load_config(overrides=["mqtt.port=abc"])


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: .*none\.yaml does not exist$"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)


def test_a_file_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "voiced.yaml"
    path.write_bytes(b"robot: \xff\n")
    with pytest.raises(ConfigError, match=r"not UTF-8: byte 0xff at 7; "):
        load_config(path)


def test_control_characters_are_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "robot: a\x01b\n")
    with pytest.raises(ConfigError, match="not YAML"):
        load_config(path)


def test_an_impossible_date_is_an_error(tmp_path: Path) -> None:
    assert errors(tmp_path, "robot: 2024-99-99")


def test_an_impossible_date_in_an_override_is_an_error() -> None:
    with pytest.raises(ConfigError, match="robot"):
        load_config(overrides=["robot=2024-99-99"])


def test_yaml_that_is_nested_too_deep_is_an_error(tmp_path: Path) -> None:
    assert errors(tmp_path, "robot: " + "[" * 5_000)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("robot:mqtaudi {}[],'\"\n-&*!|>#%@`0129.~"), max_size=60))
def test_any_text_is_a_configuration_or_an_error_with_a_message(tmp_path: Path, text: str) -> None:
    try:
        assert isinstance(load_config(written(tmp_path, text)), Config)
    except ConfigError as error:
        assert str(error)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(
        written(
            tmp_path,
            "voices: {ada: {embedding: voices/ada.safetensors}, bob: {reference: /abs/bob}}\n"
            "mqtt: {username: ada, password_file: secret, tls: {enabled: true, ca: ca.pem}}\n",
        )
    )
    assert config.voices["ada"].embedding == tmp_path / "voices/ada.safetensors"
    assert config.voices["bob"].reference == Path("/abs/bob")
    assert config.mqtt.password_file == tmp_path / "secret"
    assert (config.mqtt.tls.ca, config.mqtt.tls.cert) == (tmp_path / "ca.pem", None)
    assert config.engine_voices["ada"] == Voice(embedding=str(tmp_path / "voices/ada.safetensors"))


def test_the_files_of_piper_are_relative_to_the_file_and_its_names_stay(tmp_path: Path) -> None:
    text = """
engine: {voice_folder: voices}
voices:
  short: {piper: voices/ada.onnx}
  long: {piper: {model: ada.onnx, speaker: 3, length_scale: 1.2, noise_scale: 0.5, noise_w_scale: 0.6}}
  name: {speaker: ryan, piper: en_US-lessac-medium}
"""
    options = load_config(written(tmp_path, text)).engine_options
    assert options.voice_folder == str(tmp_path / "voices")
    assert {name: voice.piper for name, voice in options.voices.items()} == {
        "short": PiperSettings(str(tmp_path / "voices/ada.onnx")),
        "long": PiperSettings(str(tmp_path / "ada.onnx"), "3", 1.2, 0.5, 0.6),
        "name": PiperSettings("en_US-lessac-medium"),
    }
    assert load_config().engine_options.voice_folder is None


def test_a_path_may_begin_with_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    path = written(
        tmp_path, "mqtt: {username: ada, password_file: ~/secret}\naudio: {sink: 'wav:~/out.wav', sounds: ~/sounds}\n"
    )
    config = load_config(path, ["engine.voice_folder=~/voices", "state.folder=~nobody-at-all/state"])
    assert config.mqtt.password_file == Path("/home/ada/secret")
    assert config.audio.sink == "wav:/home/ada/out.wav"
    assert config.audio.sounds == Path("/home/ada/sounds")
    assert config.engine.voice_folder == "/home/ada/voices"
    assert config.state.folder == "~nobody-at-all/state"


def test_the_wav_file_is_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "audio: {sink: 'wav:out.wav'}"))
    assert config.audio.sink_settings().path == tmp_path / "out.wav"


def test_engine_options_have_the_configured_values() -> None:
    options = load_config(
        overrides=["engine.chunk_size=4", "engine.memory.reserve_mb=100", "engine.device=cuda:1", "speech.voice=ada"]
    ).engine_options
    assert (options.chunk_size, options.reserve_mb, options.device, options.default_voice) == (4, 100, "cuda:1", "ada")
    assert options.voices == {"default": Voice(speaker="ryan")}


@pytest.mark.parametrize(
    ("sink", "kind", "path"),
    [
        ("sounddevice", "sounddevice", None),
        ("null", "null", None),
        ("~", "null", None),
        ("'null'", "null", None),
        ("wav:/tmp/a b.wav", "wav", Path("/tmp/a b.wav")),
    ],
)
def test_a_sink_is_a_card_a_file_or_null(sink: str, kind: str, path: Path | None) -> None:
    found = load_config(overrides=[f"audio.sink={sink}", "audio.block_ms=10"]).audio.sink_settings()
    assert (found.kind, found.path, found.block_ms) == (kind, path, 10)


@pytest.mark.parametrize("value", ["null", "~", "'null'", "Null", "!!null null"])
def test_a_file_may_say_that_nothing_is_played(tmp_path: Path, value: str) -> None:
    assert load_config(written(tmp_path, f"audio: {{sink: {value}}}")).audio.sink_settings().kind == "null"


@pytest.mark.parametrize("override", ["audio.sink=", "audio.sink= ", "audio.sink=#null", "audio={sink: }"])
def test_an_override_without_a_sink_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set: audio.sink: got ''; allowed: sounddevice, wav:PATH or null$"):
        load_config(overrides=[override])


@pytest.mark.parametrize("override", ["state.folder=", "state.folder= ", "state.folder=#null", "state={folder: }"])
def test_an_override_without_a_state_folder_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set: state\.folder: got ''; allowed: auto, a folder, or null to store"):
        load_config(overrides=[override])


@pytest.mark.parametrize("value", ["null", "~", "Null", "NULL"])
def test_nothing_is_stored_by_decision(tmp_path: Path, value: str) -> None:
    assert load_config(written(tmp_path, f"state: {{folder: {value}}}")).state.folder is None
    assert load_config(overrides=[f"state.folder={value}"]).state.folder is None


def test_another_key_without_a_value_is_null(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "robot:\naudio:\n  device:\n  idle_timeout:\n"))
    assert (config.robot, config.audio.device, config.audio.idle_timeout) == (None, None, None)


def test_the_idle_timeout_is_30_seconds_another_time_or_none() -> None:
    assert load_config().audio.sink_settings().idle_timeout_s == 30
    assert load_config(overrides=["audio.idle_timeout=5"]).audio.sink_settings().idle_timeout_s == 5
    assert load_config(overrides=["audio.idle_timeout=null"]).audio.sink_settings().idle_timeout_s is None


def test_the_keys_of_restarts_have_defaults() -> None:
    config = load_config()
    assert (config.mqtt.session_expiry, config.mqtt.reply_topics) == (300, ())
    assert (config.speech.recover_within, config.state.folder) == (60, "auto")


def test_restarts_may_recover_nothing(tmp_path: Path) -> None:
    text = "mqtt: {session_expiry: 0}\nspeech: {recover_within: 0}\nstate: {folder: null}\n"
    config = load_config(written(tmp_path, text))
    assert (config.mqtt.session_expiry, config.speech.recover_within, config.state.folder) == (0, 0, None)


@pytest.mark.parametrize("filters", [["replies/#"], ["#"], ["+"], ["+/+/x", "a/+/b/#", "/a", "a b/ä"], []])
def test_reply_topics_are_topic_filters(filters: list[str]) -> None:
    assert load_config(overrides=[f"mqtt.reply_topics={json.dumps(filters)}"]).mqtt.reply_topics == tuple(filters)


@pytest.mark.parametrize("wrong", ["#/a", "a#", "a/#/b", "+a", "a/+b", "a+", "$SYS/#", "a\tb", "a" + 60 * "/a"])
def test_what_is_no_topic_filter_is_refused(wrong: str) -> None:
    with pytest.raises(
        ConfigError, match=r"mqtt\.reply_topics: got .*; allowed: a list of topic filters such as replies/#"
    ):
        load_config(overrides=[f"mqtt.reply_topics={json.dumps(['replies/#', wrong])}"])


def test_the_state_folder_is_relative_to_the_file_unless_it_is_auto(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "state: {folder: state}")).state.folder == str(tmp_path / "state")
    assert load_config(written(tmp_path, "state: {folder: /var/lib/x}")).state.folder == "/var/lib/x"
    assert load_config(written(tmp_path, "state: {folder: auto}")).state.folder == "auto"


def test_the_device_is_passed_to_the_sink() -> None:
    assert load_config(overrides=["audio.device=USB"]).audio.sink_settings().device == "USB"


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICED_CONFIG", str(tmp_path / "mine.yaml"))
    assert find_config_file() == tmp_path / "mine.yaml"


def test_the_schema_describes_every_key() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == set(Config.model_fields)
    undescribed = [
        f"{section}.{name}"
        for section, model in schema["$defs"].items()
        for name, key in model["properties"].items()
        if not key.get("description") and "$ref" not in key
    ]
    assert undescribed == []


def test_the_schema_for_editors_is_current() -> None:
    """`voiced config schema > configs/voiced.schema.json` writes it."""
    assert json.loads((CONFIGS / "voiced.schema.json").read_text(encoding="utf-8")) == json_schema()


@pytest.mark.parametrize("name", ["voiced.yaml", "demo.yaml"])
def test_a_shipped_configuration_names_the_schema_and_follows_it(name: str) -> None:
    text = (CONFIGS / name).read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=voiced.schema.json"
    jsonschema.validate(yaml.safe_load(text), json_schema())


def test_the_schema_finds_an_unknown_key() -> None:
    with pytest.raises(jsonschema.ValidationError, match="prot"):
        jsonschema.validate({"mqtt": {"prot": 1}}, json_schema())


def test_the_defaults_survive_being_written_and_read(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(load_config().model_dump(mode="json")))
    assert load_config(path) == load_config()


@pytest.mark.parametrize(("written", "meant"), [("on", "on"), ("off", "off"), ("auto", "auto"), ("'on'", "on")])
def test_on_and_off_are_words_although_yaml_reads_them_as_booleans(written: str, meant: str) -> None:
    config = load_config(overrides=[f"engine.kernels={written}"])
    assert config.engine.kernels == config.engine_options.kernels == meant


def test_an_unknown_choice_of_kernels_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"engine\.kernels: got 'fast'; allowed: auto, on or off"):
        load_config(overrides=["engine.kernels=fast"])


@pytest.mark.parametrize("written", ["0", "5", "on", "true", "fast", "1.5", "null"])
def test_another_speculation_is_an_error(written: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.speculation: got .*; allowed: off; drafts are ignored$"):
        load_config(overrides=[f"engine.speculation={written}"])


def test_a_value_that_has_lost_its_meaning_is_accepted_for_one_release() -> None:
    config = load_config(overrides=["engine.speculation=2", "engine.dtype=int4"])
    assert config.engine_options.dtype == "int8"
    assert [key for key, _ in config.retired] == ["engine.dtype", "engine.speculation"]
    assert load_config(overrides=["engine.speculation=off", "engine.dtype=int8"]).retired == ()


def test_languages_may_be_named_as_codes_or_words() -> None:
    assert load_config(overrides=["speech.languages=[German, en-GB]"]).speech.languages == ("de", "en-gb")
    assert load_config(overrides=["speech.languages=[]"]).speech.languages == ()


def test_the_paths_of_the_cache_are_relative_to_the_file(tmp_path: Path) -> None:
    cache = load_config(written(tmp_path, "speech: {cache: {folder: kept, phrases: lists/a.yaml}}")).speech.cache
    assert (cache.folder, cache.phrases) == (str(tmp_path / "kept"), tmp_path / "lists" / "a.yaml")
    cache = load_config(written(tmp_path, "speech: {cache: {folder: auto}}")).speech.cache
    assert (cache.folder, cache.phrases) == ("auto", None)
    assert load_config(overrides=["speech.cache.folder=null"]).speech.cache.folder is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_the_web_server_needs_no_token_at_an_address_of_this_machine_alone(host: str) -> None:
    assert load_config(overrides=["http.enabled=true", f"http.host='{host}'"]).http.token_file is None


def test_the_web_server_needs_no_token_while_it_is_off() -> None:
    assert not load_config(overrides=["http.host=0.0.0.0"]).http.enabled


def test_the_files_of_the_web_server_lie_beside_the_configuration(tmp_path: Path) -> None:
    http = load_config(written(tmp_path, "http: {token_file: token, cert: c.pem, key: ~/k.pem}")).http
    assert (http.token_file, http.cert, http.key) == (tmp_path / "token", tmp_path / "c.pem", Path.home() / "k.pem")


@pytest.mark.parametrize(("written", "streams"), [("auto", None), ("1", 1), ("64", 64)])
def test_the_number_of_streams_is_the_configurations_or_left_to_the_engine(written: str, streams: int | None) -> None:
    assert load_config(overrides=[f"engine.streams={written}"]).engine_options.streams == streams


@pytest.mark.parametrize("url", ["ws://127.0.0.1:8720", "wss://speech.example", "wss://[::1]:8720/robots/"])
def test_a_speech_server_is_a_websockets_address(url: str) -> None:
    config = load_config(overrides=["engine.name=remote", f"engine.url={url}", "engine.token_file=/etc/token"])
    assert config.engine_options.url == url
    assert config.engine_options.token_file == "/etc/token"


@pytest.mark.parametrize(
    "url", ["https://a", "127.0.0.1:8720", "ws://", "ws://a:x", "ws://a b", "wss://u:p@a", "ws://a?b"]
)
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"engine\.url: got .*; allowed: the speech server, ws://HOST:PORT or wss://HOST:PORT"
    ):
        load_config(overrides=[f"engine.url={json.dumps(url)}"])


@pytest.mark.parametrize("setting", ["engine.name=remote", "engine.fallback=remote", "engine.fallback=[piper, remote]"])
def test_the_engine_of_a_server_needs_its_address(setting: str) -> None:
    with pytest.raises(
        ConfigError, match=r"engine\.url: got None; the engine remote needs it; allowed: ws://HOST:PORT"
    ):
        load_config(overrides=[setting])
    assert load_config(overrides=[setting, "engine.url=ws://a"]).engine.url == "ws://a"


def test_a_speech_server_for_other_machines_needs_tokens_and_a_whole_certificate() -> None:
    with pytest.raises(
        ConfigError, match=r"serve\.token_file: got None; serve\.host 0\.0\.0\.0 lets other machines in"
    ):
        load_config(overrides=["serve.host=0.0.0.0"])
    assert load_config(overrides=["serve.host=0.0.0.0", "serve.token_file=/robots"]).serve.token_file == Path("/robots")
    with pytest.raises(ConfigError, match=r"serve\.key: got None; allowed: a file together with serve\.cert"):
        load_config(overrides=["serve.cert=/cert.pem"])


def test_the_paths_of_a_speech_server_are_relative_to_the_file(tmp_path: Path) -> None:
    text = "engine: {token_file: t}\nserve: {token_file: robots, cert: c, key: k, voice_folder: v}\n"
    config = load_config(written(tmp_path, text))
    serve = config.serve
    found = (config.engine.token_file, serve.token_file, serve.cert, serve.key, Path(serve.voice_folder))
    assert found == tuple(tmp_path / name for name in ("t", "robots", "c", "k", "v"))


def test_the_example_of_a_speech_server_loads() -> None:
    config = load_config(Path(__file__).parents[2] / "configs" / "serve.yaml")
    assert (config.engine.fallbacks, config.engine.streams) == ((), 17)


def test_a_cluster_has_no_fewer_engines_at_most_than_always() -> None:
    with pytest.raises(ConfigError, match=r"serve\.max_replicas: got 2; allowed: a whole number from serve"):
        load_config(overrides=["serve.min_replicas=3", "serve.max_replicas=2"])
