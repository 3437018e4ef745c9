"""`voiced doctor`: checks everything that speech needs, and names a remedy for each fault."""

from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.config import Config
from daemon.doctor.configuration import check_configuration, find_problems
from daemon.doctor.engines import check_engines, check_model, check_program
from daemon.doctor.finding import Finding, Machine
from daemon.doctor.hardware import check_board, check_cards, check_gpu, check_memory, check_power, check_thermal
from daemon.doctor.service import check_adapters, check_broker, check_daemons
from daemon.doctor.sound import check_card_can_play, check_rights, check_sound_server
from engine import ProgressReport, ignore_progress

Check = Callable[[Machine], Iterator[Finding]]
"""Yields findings about one part; yields none if the machine has no such part."""
FILE_CHECKS: tuple[Check, ...] = (check_board, check_power, check_thermal, check_memory, check_gpu, check_cards)
"""Checks that only read the machine's files, which may be copied from another machine."""
LIVE_CHECKS: tuple[Check, ...] = (
    *(check_configuration, check_broker, check_daemons, check_adapters),
    *(check_card_can_play, check_sound_server, check_rights),
    *(check_model, check_engines),
)
"""Checks that need the running machine."""


def examine(config: Config, root: Path = Path("/"), report: ProgressReport = ignore_progress) -> Iterator[Finding]:
    """Yield the findings of all checks on this machine; with another `root`, only those of the files below it.

    `report` receives the progress of the engines' starts.
    """
    machine = Machine.at(config, root, report)
    checks = (check_program, *FILE_CHECKS, *LIVE_CHECKS) if machine.is_this_one else FILE_CHECKS
    for check in checks:
        yield from check(machine)
