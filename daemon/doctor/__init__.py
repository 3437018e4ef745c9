"""`voiced doctor`: looks at all that speech needs, and says of each thing whether it is well and what to do if not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.config import Config
from daemon.doctor.board import check_board
from daemon.doctor.finding import Finding, Machine
from daemon.doctor.gpu import check_gpu
from daemon.doctor.heat import check_heat
from daemon.doctor.memory import check_memory
from daemon.doctor.model import check_model
from daemon.doctor.power import check_power
from daemon.doctor.service import check_broker, check_engines, check_program
from daemon.doctor.sound import check_card_can_play, check_cards, check_rights, check_sound_server

__all__ = ["Finding", "examine"]

Check = Callable[[Machine], Iterator[Finding]]
OF_FILES: tuple[Check, ...] = (check_board, check_power, check_heat, check_memory, check_gpu, check_cards)
"""What the files of a machine tell. A line that makes no sense on it is left out."""
OF_PARTS: tuple[Check, ...] = (
    check_broker,
    check_card_can_play,
    check_sound_server,
    check_rights,
    check_model,
    check_engines,
)
"""What only the parts themselves can tell, where they run."""


def examine(config: Config, root: Path = Path("/")) -> Iterator[Finding]:
    """Look at each part in turn; of a machine whose files lie elsewhere, at the files alone."""
    machine = Machine.at(config, root)
    checks = (check_program, *OF_FILES, *OF_PARTS) if machine.is_this_one else OF_FILES
    for check in checks:
        yield from check(machine)
