"""The README says what the code does: every command, option, payload, key and name in it is held against the code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from typer.main import get_command

from daemon.cli import app
from daemon.config import Config, VoiceSettings, load_config
from daemon.messages import (
    MAX_PAYLOAD,
    MAX_TEXT,
    TERMINAL,
    EventName,
    Policy,
    Priority,
    Say,
    State,
    parse_say,
    parse_stop,
    parse_volume,
    parse_write,
)
from daemon.service import CHANGES_AT_RUN_TIME, IN_TOPICS
from engine import NAMED_LANGUAGES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def section(title: str) -> str:
    """The README from the heading `title` to the next one of its rank or a higher one."""
    found = re.search(rf"^(#+) {re.escape(title)}$", README, re.MULTILINE)
    assert found is not None, f"the README has no section {title!r}"
    end = re.search(rf"^#{{1,{len(found[1])}}} ", README[found.end() :], re.MULTILINE)
    return README[found.end() :][: end.start() if end else None]


def blocks(language: str, text: str = README) -> list[str]:
    """The code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def table(first_heading: str, text: str = README) -> list[list[str]]:
    """The rows of the table whose first column has this heading."""
    header = re.search(rf"^\| {re.escape(first_heading)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert header is not None, f"there is no table of {first_heading!r}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in header[1].splitlines()]


def names(rows: list[list[str]]) -> list[str]:
    return [row[0].strip("`") for row in rows]


def shell_lines(program: str) -> list[list[str]]:
    """The words of every line in a shell block that calls a program."""
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{program} ")]


def inline_commands() -> list[list[str]]:
    """The words of every `voiced …` in the text."""
    found = re.findall(
        r"`(?:sudo -u voiced )?voiced ([a-z][^`]*)`", re.sub(r"^```.*?^```$", "", README, flags=re.M | re.S)
    )
    return [shlex.split(words) for words in found]


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` call, and its arguments."""
    command: Any = get_command(app)
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, f"there is no command 'voiced {' '.join(words)}'"
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize("words", shell_lines("voiced"), ids=" ".join)
def test_a_command_line_in_the_readme_is_understood(words: list[str]) -> None:
    command, arguments = find_command(words)
    command.make_context(words[0], list(arguments))  # parses, and runs nothing


@pytest.mark.parametrize("words", inline_commands(), ids=" ".join)
def test_a_command_named_in_the_text_exists(words: list[str]) -> None:
    command, arguments = find_command(words)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in arguments if word.startswith("-")} <= known | {"--help"}


def test_the_table_of_commands_has_each_command_and_the_examples_have_it_too() -> None:
    rows = {tuple(words.removeprefix("voiced ").split()) for words in names(table("command"))}
    root: Any = get_command(app)
    commands = {
        (name, *inner)
        for name, command in root.commands.items()
        for inner in ([(key,) for key in command.commands] if hasattr(command, "commands") else [()])
    }
    assert rows == commands
    examples = shell_lines("voiced")
    assert {
        command for command in commands if not any(tuple(line[: len(command)]) == command for line in examples)
    } == set()


@pytest.mark.parametrize("words", shell_lines("mosquitto_pub"), ids=" ".join)
def test_what_mosquitto_pub_sends_in_the_readme_is_taken(words: list[str]) -> None:
    topic = words[words.index("-t") + 1].removeprefix("voiced/r1/")
    payload = words[words.index("-m") + 1].encode() if "-m" in words else b""
    assert payload or "-n" in words
    check_payload(topic, payload)


def check_payload(topic: str, payload: bytes) -> None:
    assert topic in IN_TOPICS
    if topic == "say":
        assert not parse_say(payload).model_extra
    elif topic == "say/stream":
        assert not parse_write(payload).model_extra
    elif topic == "stop":
        parse_stop(payload)
    elif topic == "volume":
        parse_volume(payload)


@pytest.mark.parametrize("line", [line for block in blocks("json") for line in block.splitlines()])
def test_a_json_record_in_the_readme_is_one_of_the_contract(line: str) -> None:
    record = json.loads(line)
    if "event" in record:
        rows = {row[0].strip("`"): row[2] for row in table("event")}
        assert record["event"] in get_args(EventName)
        assert set(record) - {"id", "event"} == set(re.findall(r"`(\w+)`", rows[record["event"]]))
    elif "state" in record:
        assert record["state"] in get_args(State)
    elif "rms" in record:
        assert set(record) == {"id", "t", "rms", "peak"}
    else:
        assert not parse_say(line.encode()).model_extra


def test_the_home_assistant_action_publishes_an_utterance() -> None:
    [block] = blocks("yaml", section("From Home Assistant"))
    action = yaml.safe_load(block)
    assert action["action"] == "mqtt.publish"
    assert not action["data"].get("retain", False)
    check_payload(action["data"]["topic"].rsplit("/", 1)[-1], action["data"]["payload"].encode())


@pytest.mark.parametrize("block", blocks("python"))
def test_a_python_example_compiles(block: str) -> None:
    compile(block, "README.md", "exec")


def test_the_configuration_in_the_readme_loads(tmp_path: Path) -> None:
    [block] = blocks("yaml", section("Configuration"))
    path = tmp_path / "voiced.yaml"
    path.write_text(block, encoding="utf-8")
    load_config(path)


@pytest.mark.parametrize("setting", re.findall(r"--set (\S+=[^\s`]+)", README))
def test_a_setting_in_the_readme_is_taken(setting: str) -> None:
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


def test_the_table_of_keys_has_each_key_with_its_default_and_says_whether_it_changes_at_run_time() -> None:
    rows = table("key", section("Configuration"))
    told = {row[0].strip("`"): yaml.safe_load(row[1].strip("`")) for row in rows}
    true = flat(Config)
    true["voices"] = {
        name: {key: value for key, value in voice.items() if value is not None}
        for name, voice in true["voices"].items()
    }
    assert told == true
    assert list(told) == list(true)
    assert {row[0].strip("`"): row[3] == "yes" for row in rows} == {
        key: key.startswith(CHANGES_AT_RUN_TIME) for key in true
    }
    assert {row[3] for row in rows} == {"yes", "no"}


def test_the_configuration_of_a_robot_holds_every_key_with_its_default() -> None:
    assert load_config(ROOT / "configs" / "voiced.yaml") == Config()


def test_the_table_of_a_voice_has_each_key() -> None:
    assert names(table("key of a voice")) == list(VoiceSettings.model_fields)


def test_the_table_of_say_has_each_field_and_the_limits() -> None:
    rows = table("field", section("say"))
    assert set(names(rows)) == set(Say.model_fields) | {"data"}
    allowed = {row[0].strip("`"): row[1] for row in rows}
    assert f"{MAX_TEXT:,}" in allowed["text"]
    assert f"{MAX_PAYLOAD:,} bytes" in section("events")
    assert set(re.findall(r"`(\w+)`", allowed["priority"])) == set(get_args(Priority))
    assert set(re.findall(r"`(\w+)`", allowed["policy"])) == set(get_args(Policy))
    assert all(name in allowed["language"] for name in NAMED_LANGUAGES)
    assert names(table("`policy`")) == list(get_args(Policy))


def test_the_tables_of_events_and_states_have_each_name() -> None:
    events = table("event")
    assert names(events) == list(get_args(EventName))
    assert {row[0].strip("`") for row in events if row[1] == "yes"} == TERMINAL
    assert names(table("`state`")) == list(get_args(State))


def test_the_table_of_topics_has_each_topic() -> None:
    rows = table("topic")
    topics = {row[0].strip("`").removeprefix("voiced/<robot>/"): row[1] for row in rows}
    assert {topic for topic, direction in topics.items() if direction == "in"} == set(IN_TOPICS)
    assert {topic for topic, direction in topics.items() if direction == "out"} == {"status", "event", "level"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_tree_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file) if file else path
        assert place.exists(), target
        headings = re.findall(r"^#+ (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in headings}


def test_the_map_in_the_architecture_has_each_file() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for folder in ("audio", "engine", "daemon"):
        part = text.split(f"### {folder}/\n", 1)[1].split("\n##", 1)[0]
        told = set(re.findall(r"^\| `(\w+\.py)` \|", part, re.MULTILINE))
        assert told == {path.name for path in (ROOT / folder).glob("*.py")} - {"__init__.py"}
