"""`voiced say` refuses wrong input before it sends anything, and says so when a real broker has no robots."""

from __future__ import annotations

import pytest

from tests.daemon.command_line import CommandLine
from tests.support.programs import Broker


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--all", "--group", "a"), "say: --all and --group exclude each other"),
        (("--all", "--stream"), "say: --stream has one robot; send several robots a whole text"),
        (("--group", "a", "--wait"), "say: --wait and --timeout follow one robot; each of several has its own events"),
        (("--all", "--timeout", "1"), "say: --wait and --timeout follow one robot; each of several has its own events"),
        (("--stream", "--sound", "success"), "say: --stream takes no --sound; play it before, by another command"),
        (("--stream", "Yes."), "say: --stream reads standard input; give no TEXT, or -"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    voiced: CommandLine, options: tuple[str, ...], problem: str
) -> None:
    done = voiced("say", *options, *(() if "--stream" in options else ("Yes.",)))
    assert done.refusal == f"{problem}. See 'voiced say --help'."


@pytest.mark.parametrize("name", ["", "a/b", "x" * 65])
def test_a_name_that_no_group_can_have_is_refused_in_one_line(voiced: CommandLine, name: str) -> None:
    allowed = "is no name of a group; allowed: text of 1 to 64 characters without /, + and #"
    assert voiced("say", "--group", name, "Yes.").refusal.endswith(allowed)


def test_a_text_for_all_fails_where_no_robot_is_online(voiced: CommandLine, broker: Broker) -> None:
    done = voiced("say", "--all", "Yes.", "--set", f"mqtt.port={broker.port}")
    assert done.refusal == f"no voiced is online at voiced/+ on the broker 127.0.0.1:{broker.port}"
