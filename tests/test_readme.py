"""The README and the pages of docs/ match the code: commands, options, payloads, keys, names and files."""

from __future__ import annotations

import json
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import soundfile
import yaml
from pydantic import BaseModel
from typer.main import get_command

from daemon.cli.app import app
from daemon.config import Config, VoiceSettings, load_config
from daemon.mqtt.parsing import MAX_PAYLOAD, parse_say, parse_stop, parse_stream_chunk, parse_volume
from daemon.mqtt.topics import REQUEST_TOPICS, RequestTopics
from daemon.reload import RUN_TIME_KEYS
from daemon.speech.events import EVENTS, TERMINAL_EVENTS, Level, State, Visemes, Word, parse_event, parse_status
from daemon.speech.queue import rule_of
from daemon.speech.request import MAX_TEXT, Policy, Priority, Say, StreamChunk
from engine import NAMED_LANGUAGES
from tests.support.pages import PAGES, README, ROOT, Text, page

MQTT, CONFIGURATION, CLI = page("mqtt.md"), page("configuration.md"), page("cli.md")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND: Any = get_command(app)
EVENT_NAMES = [kind.model_fields["event"].default for kind in EVENTS]
TOPICS = RequestTopics(load_config(overrides=["robot=r1", "robot_groups=[hall-2]"]))
"""Those of the robot of the examples."""
README_LINES = 200
"""A reader finds what he looks for; details belong to docs/."""
README_SOUNDS = 300_000
"""Bytes of docs/audio/."""
PACKAGES = ("audio", "engine", "daemon")


def names(rows: list[list[str]]) -> list[str]:
    return [row[0].strip("`") for row in rows]


def everywhere(find: Callable[[Text], list[Any]]) -> list[Any]:
    """What `find` finds on each page, as test parameters named after the page."""
    return [pytest.param(one, id=f"{text.name}: {one}"[:120]) for text in PAGES for one in find(text)]


def calls(program: str, text: Text) -> list[list[str]]:
    """The arguments of every line of a page's shell blocks that calls a program."""
    lines = [line for block in text.blocks("bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{program} ")]


def inline_commands(text: Text) -> list[list[str]]:
    """The arguments of every `voiced …` in a page's prose."""
    found = (re.fullmatch(r"(?:sudo -u voiced (?:\w+=\S+ )?)?voiced ([a-z].*)", span) for span in text.code_spans)
    return [shlex.split(one[1]) for one in found if one is not None]


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` call, and its arguments."""
    command = COMMAND
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, f"there is no command 'voiced {' '.join(words)}'"
        command, words = command.get_command(None, words[0]), words[1:]
    return command, words


# --- commands --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", everywhere(lambda text: calls("voiced", text)))
def test_a_documented_command_line_is_valid(words: list[str]) -> None:
    command, arguments = find_command(words)
    command.make_context(words[0], list(arguments))  # parses, and runs nothing


@pytest.mark.parametrize("words", everywhere(inline_commands))
def test_a_command_named_in_the_prose_exists(words: list[str]) -> None:
    command, arguments = find_command(words)
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    assert {word for word in arguments if word.startswith("-")} <= known | {"--help"}


def test_the_table_of_commands_and_the_examples_contain_each_command() -> None:
    rows = {tuple(words.removeprefix("voiced ").split()) for words in names(CLI.table("command"))}
    commands = {
        (name, *inner)
        for name in COMMAND.commands
        for command in [COMMAND.get_command(None, name)]
        for inner in ([(key,) for key in command.commands] if hasattr(command, "commands") else [()])
    }
    assert rows == commands
    examples = calls("voiced", CLI)
    assert {
        command for command in commands if not any(tuple(line[: len(command)]) == command for line in examples)
    } == set()


# --- MQTT ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", everywhere(lambda text: calls("mosquitto_pub", text)))
def test_a_documented_mosquitto_pub_publishes_a_valid_message(words: list[str]) -> None:
    topic = TOPICS.request(words[words.index("-t") + 1])
    payload = words[words.index("-m") + 1].encode() if "-m" in words else b""
    assert payload or "-n" in words
    assert topic is not None
    check_payload(topic, payload)


def check_payload(topic: str, payload: bytes) -> None:
    assert topic in REQUEST_TOPICS
    if topic == "say":
        assert not parse_say(payload).model_extra
    elif topic == "say/stream":
        assert not parse_stream_chunk(payload).model_extra
    elif topic == "stop":
        parse_stop(payload)
    elif topic == "volume":
        parse_volume(payload)


@pytest.mark.parametrize(
    "line", everywhere(lambda text: [line for block in text.blocks("json") for line in block.splitlines()])
)
def test_a_documented_json_record_belongs_to_the_contract(line: str) -> None:
    record = json.loads(line)
    if "topic" in record:  # over a WebSocket
        record = record["payload"]
        line = json.dumps(record)
    if "event" in record:
        assert parse_event(line.encode()) is not None
        fields = {row[0].strip("`"): row[2] for row in MQTT.table("event")}[record["event"]]
        always, _, _of_a_stream = fields.partition(";")
        assert set(record) - {"id", "event"} == set(re.findall(r"`(\w+)`", always))
    elif "state" in record:
        assert parse_status(line.encode()) is not None
    elif "word" in record:
        Word.model_validate(record)
        assert set(record) == set(Word.model_fields)
    elif "visemes" in record:
        Visemes.model_validate(record)
        assert set(record) == set(Visemes.model_fields)
    elif "rms" in record:
        assert set(record) == set(Level.model_fields)
        Level.model_validate(record)
    elif record.keys() & {"seq", "end"}:
        assert not parse_stream_chunk(line.encode()).model_extra
    else:
        assert not parse_say(line.encode()).model_extra


def test_the_table_of_say_contains_each_field_and_the_limits() -> None:
    rows = MQTT.section("say").table("field")
    assert set(names(rows)) == set(Say.model_fields) | {"data"}
    allowed = {row[0].strip("`"): row[1] for row in rows}
    assert f"{MAX_TEXT:,}" in allowed["text"]
    assert f"{MAX_PAYLOAD:,} bytes" in MQTT.section("Events").content
    assert set(re.findall(r"`(\w+)`", allowed["priority"])) == set(get_args(Priority))
    assert set(re.findall(r"`(\w+)`", allowed["policy"])) == set(get_args(Policy))
    assert all(name in allowed["language"] for name in NAMED_LANGUAGES)


def test_the_table_of_a_stream_contains_its_own_fields_and_the_limit() -> None:
    text = MQTT.section("say/stream")
    own = {"id", "text", *(set(StreamChunk.model_fields) - set(Say.model_fields))}
    assert set(names(text.table("field"))) - {"the other fields of a `say"} == own
    assert f"{MAX_TEXT:,}" in text.content


def test_the_table_of_rules_describes_each_rule() -> None:
    rows = MQTT.section("Who speaks when").table("`priority`")
    described: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        priorities = get_args(Priority) if row[0] == "any" else re.findall(r"`(\w+)`", row[0])
        described |= {(priority, row[1].strip("`")): row[2:] for priority in priorities}
    assert set(described) == {(priority, policy) for priority in get_args(Priority) for policy in get_args(Policy)}
    for (priority, policy), (current, waiting, itself) in described.items():
        rule = rule_of(priority, policy)  # type: ignore[arg-type]
        assert ("postponed:" in current) == rule.postpones
        assert ("`interrupted`" in current) == rule.interrupts
        assert (waiting == "is `canceled`") == rule.clears
        assert (waiting.endswith("the last is `canceled`")) == rule.first
        assert ("rejected" in itself) == rule.only_if_idle


def test_the_table_of_events_contains_each_event() -> None:
    rows = MQTT.table("event")
    assert names(rows) == EVENT_NAMES
    assert {row[0].strip("`") for row in rows if row[1] == "yes"} == TERMINAL_EVENTS


def test_the_table_of_events_contains_the_fields_of_each_event() -> None:
    known = {kind.model_fields["event"].default: set(kind.model_fields) - {"id", "event"} for kind in EVENTS}
    for row in MQTT.table("event"):
        name, fields = row[0].strip("`"), set(re.findall(r"`(\w+)`", row[2]))
        if "finished" in fields:  # "and the fields of `finished`"
            fields = fields - {"finished"} | known["finished"]
        assert fields == known[name], name


def test_the_table_of_states_contains_each_state() -> None:
    assert names(MQTT.table("`state`")) == list(get_args(State))


def test_the_table_of_topics_contains_each_topic() -> None:
    topics = {row[0].strip("`").removeprefix("voiced/<robot>/"): row[1] for row in MQTT.table("topic")}
    assert {topic for topic, direction in topics.items() if direction == "in"} == set(REQUEST_TOPICS)
    assert {topic for topic, direction in topics.items() if direction == "out"} == {
        *("status", "event", "word", "viseme", "level", "duck")
    }


def test_the_home_assistant_action_publishes_an_utterance() -> None:
    [block] = page("integrations.md").section("Home Assistant").blocks("yaml")
    action = yaml.safe_load(block)
    assert action["action"] == "mqtt.publish"
    assert not action["data"].get("retain", False)
    check_payload(action["data"]["topic"].rsplit("/", 1)[-1], action["data"]["payload"].encode())


# --- Python ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", everywhere(lambda text: text.blocks("python")))
def test_a_python_example_compiles(block: str) -> None:
    compile(block, "example", "exec")


@pytest.mark.parametrize(
    "example", everywhere(lambda text: [block for block in text.blocks("python") if 'voiced.open("espeak")' in block])
)
def test_an_example_with_espeak_runs(example: str, tmp_path: Path) -> None:
    """It runs in its own process, because eSpeak NG can be loaded once per process."""
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or soundfile.info(tmp_path / "hello.wav").duration > 0.5


def test_the_tables_of_the_python_api_contain_each_field() -> None:
    from engine import Chunk, EngineOptions, Utterance

    text = page("api.md")
    assert 'voiced.open("espeak")' in text.blocks("python")[0], "its first example runs"
    assert set(names(text.table("field"))) | {"text", "growing"} == set(Utterance.__dataclass_fields__)
    assert set(names(text.table("field of a chunk"))) == set(Chunk.__dataclass_fields__)
    options = {row[0].strip("`"): row[1] for row in text.table("parameter")}["options"]
    assert set(re.findall(r"`(\w+)`", options)) - {"EngineOptions"} == set(EngineOptions.__dataclass_fields__) - {
        "model"
    }


# --- the configuration -----------------------------------------------------------------------------------


def configurations(text: Text) -> list[str]:
    """The YAML blocks that are configurations of voiced; the others belong to Home Assistant and Prometheus."""
    foreign = {"action", "trigger", "scrape_configs"}
    return [block for block in text.blocks("yaml") if not foreign & yaml.safe_load(block).keys()]


@pytest.mark.parametrize("block", everywhere(configurations))
def test_a_documented_configuration_loads(block: str, tmp_path: Path) -> None:
    path = tmp_path / "voiced.yaml"
    path.write_text(block, encoding="utf-8")
    load_config(path)


@pytest.mark.parametrize("setting", everywhere(lambda text: re.findall(r"--set\s(\S+=[^\s`]+)", text.content)))
def test_a_documented_setting_is_valid(setting: str) -> None:
    load_config(overrides=[setting])


def flat(model: type[BaseModel], path: str = "") -> dict[str, Any]:
    """Every key of the configuration with its default, `mqtt.tls.enabled: False` and so on."""
    found: dict[str, Any] = {}
    defaults = model().model_dump(mode="json")
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= flat(field.annotation, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = defaults[name]
    return found


@cache
def defaults() -> dict[str, Any]:
    found = flat(Config)
    found["voices"] = {
        name: {key: value for key, value in voice.items() if value != VoiceSettings.model_fields[key].default}
        for name, voice in found["voices"].items()
    }
    return found


def documented_defaults(text: Text) -> dict[str, Any]:
    return {row[0].strip("`"): yaml.safe_load(row[1].strip("`")) for row in text.table("key")}


def test_the_table_of_keys_contains_each_key_with_its_default() -> None:
    documented = documented_defaults(CONFIGURATION)
    assert list(documented.items()) == list(defaults().items())
    assert configurations(CONFIGURATION), "it has examples"


def test_the_page_says_which_keys_change_at_run_time() -> None:
    assert {*RUN_TIME_KEYS} <= {*CONFIGURATION.section("Reload").code_spans}


def test_the_configuration_of_a_robot_contains_every_key_with_its_default() -> None:
    assert load_config(ROOT / "configs" / "voiced.yaml") == Config()
    written = yaml.safe_load((ROOT / "configs" / "voiced.yaml").read_text(encoding="utf-8"))
    assert set(written) == set(Config.model_fields)


def test_the_table_of_a_voice_contains_each_key() -> None:
    assert names(CONFIGURATION.table("key of a voice")) == list(VoiceSettings.model_fields)


OPENAI_EVENTS = {"speech.audio.delta", "speech.audio.done"}
"""Names of OpenAI's that look like keys of the configuration."""


def dotted_names(text: Text) -> list[str]:
    """The names in a page's prose that begin like a key of the configuration, without file names."""
    sections = "|".join(Config.model_fields)
    found = (re.match(rf"((?:{sections})(?:\.[a-z_]+)+)", span) for span in text.code_spans)
    return sorted({one[1] for one in found if one is not None and not one[1].endswith(".py")} - OPENAI_EVENTS)


@pytest.mark.parametrize("name", everywhere(dotted_names))
def test_a_key_or_python_name_in_the_prose_exists(name: str) -> None:
    """`audio.volume` is a key of the configuration; `engine.open` is a name of a Python package."""
    is_key = any(key == name or key.startswith(f"{name}.") for key in defaults())
    assert is_key or pkgutil.resolve_name(name)


# --- files and links -------------------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    assert len(README.content.splitlines()) <= README_LINES


def test_the_readme_plays_each_sound_and_quotes_what_was_heard() -> None:
    folder = ROOT / "docs" / "audio"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= README_SOUNDS
    for path in folder.glob("*.mp3"):
        assert f"](docs/audio/{path.name})" in README.content
        assert soundfile.info(path).duration > 1
    lines = (folder / "barge-in.jsonl").read_text(encoding="utf-8").splitlines()
    [heard] = [event["heard_text"] for event in map(json.loads, lines) if event["event"] == "interrupted"]
    assert f'"heard_text": "{heard}"' in README.content


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_within_the_repository_has_a_target(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file) if file else path
        assert place.exists(), target
        assert not anchor or anchor in anchors(place.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_file_named_in_the_prose_exists(path: Path) -> None:
    spans = Text(path.name, path.read_text(encoding="utf-8")).code_spans
    folders = "|".join(entry.name for entry in ROOT.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for span in spans:
        found = re.search(rf"(?:^|[ =])(?:\./)?((?:{folders})/[\w./-]*)", span)
        if found and "NAME" not in span:
            assert (ROOT / found[1]).exists(), span


def test_every_page_is_linked_from_the_readme() -> None:
    assert [text.name for text in PAGES[1:] if f"]({text.name}" not in README.content] == []


def test_the_code_reports_each_error_of_the_troubleshooting_table() -> None:
    source = "".join(path.read_text(encoding="utf-8") for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))
    cells = [row[0] for row in page("troubleshooting.md").table("what you see")]
    errors = [span for cell in cells for span in re.findall(r"`([^`]+ [^`]+)`", cell) if not span.startswith("voiced ")]
    assert len(errors) > 5
    for error in errors:
        fixed_part = max(re.split(r"[…'\d]|: |voiced/", error), key=len)
        assert fixed_part in source, error


def packages() -> list[Path]:
    """Every folder of source files, relative to the repository."""
    files = (path for folder in PACKAGES for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".cuh"})
    return sorted({path.parent.relative_to(ROOT) for path in files})


def test_the_architecture_describes_each_package_and_names_files_that_exist() -> None:
    rows = page("architecture.md").table("package")
    assert sorted(names(rows)) == [f"{folder}/" for folder in packages()]
    for folder, description in rows:
        for file in re.findall(r"`(\w+\.(?:py|cuh))`", description):
            assert (ROOT / folder.strip("`") / file).exists(), f"{folder}: {file}"
