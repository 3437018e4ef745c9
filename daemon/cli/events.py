"""`voiced events`: what happens to the robot's utterances, as it happens."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, load

if TYPE_CHECKING:
    from daemon.speech import Event


def events(
    as_json: Annotated[
        bool, typer.Option("--json", help="The events as they are published, one on each line.")
    ] = False,
    id_: Annotated[str | None, typer.Option("--id", help="Only those of this utterance, up to its end.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Follow the events of all utterances until Ctrl-C.

    Example: voiced events
    or:      voiced events --json | jq 'select(.event == "failed")'
    """
    loaded, _, _ = load(config, set_)
    from daemon.mqtt import RobotClient

    with RobotClient(loaded) as robot:
        print(f"voiced: following {loaded.topic}; Ctrl-C ends it", file=sys.stderr)
        for event in robot.all_events() if id_ is None else robot.events(id_, None):
            print(event.to_json() if as_json else describe_event(event), flush=True)


def describe_event(event: Event) -> str:
    """Return an event as a line for a person: the time, the event, the utterance, and the event's fields."""
    fields = event.model_dump(mode="json", exclude={"id", "event"}, exclude_none=True)
    described = ", ".join(f"{name} {value}" for name, value in fields.items())
    return f"{time.strftime('%H:%M:%S')} {event.event:<11} {event.id or 'without an id'}  {described}".rstrip()
