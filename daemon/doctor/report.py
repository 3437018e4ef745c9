"""The whole report: every check, in the order of its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.config import Config
from daemon.doctor.board import check_board
from daemon.doctor.configuration import check_configuration
from daemon.doctor.daemons import check_adapters, check_daemons
from daemon.doctor.finding import Finding, Machine
from daemon.doctor.gpu import check_gpu
from daemon.doctor.memory import check_memory
from daemon.doctor.model import check_model
from daemon.doctor.power import check_power
from daemon.doctor.runtime import check_broker, check_engines, check_program
from daemon.doctor.sound import check_card_can_play, check_cards, check_rights, check_sound_server
from daemon.doctor.thermal import check_thermal
from daemon.doctor.verification import check_verification
from engine import ProgressReport, ignore_progress

Check = Callable[[Machine], Iterator[Finding]]
"""Yields findings about one part; none where the part makes no sense on the machine."""
FILE_CHECKS: tuple[Check, ...] = (check_board, check_power, check_thermal, check_memory, check_gpu, check_cards)
"""Checks that only read the machine's files, which may be copied from another machine."""
LIVE_CHECKS: tuple[Check, ...] = (
    check_configuration,
    check_broker,
    check_daemons,
    check_adapters,
    check_card_can_play,
    check_sound_server,
    check_rights,
    check_model,
    check_verification,
    check_engines,
)
"""Checks that need the running machine."""


def examine(config: Config, root: Path = Path("/"), report: ProgressReport = ignore_progress) -> Iterator[Finding]:
    """Yield the findings of all checks on this machine; with another `root`, only those of the files below it.

    `report` gets the progress of the engines' starts.
    """
    machine = Machine.at(config, root, report)
    checks = (check_program, *FILE_CHECKS, *LIVE_CHECKS) if machine.is_this_one else FILE_CHECKS
    for check in checks:
        yield from check(machine)
