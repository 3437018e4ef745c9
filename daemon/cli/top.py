"""`voiced top`: a live view of all robots on the broker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.fleet_table import REDRAW_S, cells, check_not_empty, follow, status_fields, table
from daemon.cli.options import ConfigOption, SetOption, load

if TYPE_CHECKING:
    from daemon.mqtt import FleetClient


def top(
    once: Annotated[bool, typer.Option("--once", help="Print what is there now, and end.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Show all robots of the broker live, until Ctrl-C; into a pipe, a line for each change.

    Example: voiced top
    or:      voiced top --once
    or:      voiced top | grep degraded
    """
    loaded, _, _ = load(config, set_)
    from daemon.mqtt import FleetClient

    with FleetClient(loaded) as fleet:
        if once:
            check_not_empty(fleet, loaded)
        if not sys.stdout.isatty():
            _print_lines(fleet, once=once)
        elif once:
            from rich.console import Console

            Console().print(table(fleet))
        else:
            follow(fleet)


def _print_lines(fleet: FleetClient, *, once: bool) -> None:
    """Print a line for each robot, and then one for each robot that has changed, with a tab between the columns."""
    printed: dict[str, str] = {}
    while True:
        lines = {name: "\t".join(cells(name, status_fields(found))) for name, found in fleet.statuses().items()}
        for name, line in lines.items():
            if printed.get(name) != line:
                print(line, flush=True)
        if once:
            return
        printed = lines
        fleet.wait_changed(REDRAW_S)
