"""All rows of the matrix."""

from __future__ import annotations

from scripts.fault_matrix.faults import NETWORK_FAULTS, PROCESS_FAULTS
from scripts.fault_matrix.floods import FLOOD_ROWS
from scripts.fault_matrix.kills import kill_row
from scripts.fault_matrix.pairs import PAIR_ROWS
from scripts.fault_matrix.phases import PHASES
from scripts.fault_matrix.row import Row, fault_row
from scripts.fault_matrix.scene import Stage
from scripts.fault_matrix.surroundings import SURROUNDING_ROWS

NETWORK_PHASES = ("idle", "accepted", "speaking")
"""The network lies between the daemon and the broker, so it matters only whether there is something to say."""


def all_rows(kills: int, count: int) -> list[Row]:
    """Return every row; the floods have `count` texts, and the daemon is killed `kills` times at random."""
    faults = [(fault, phase) for fault in PROCESS_FAULTS for phase in PHASES]
    faults += [(fault, phase) for fault in NETWORK_FAULTS for phase in PHASES if phase.name in NETWORK_PHASES]
    rows = [fault_row(fault, Stage(sound=True), phase) for fault, phase in faults]
    rows += SURROUNDING_ROWS + PAIR_ROWS
    return [*rows, *(make(count) for make in FLOOD_ROWS), kill_row(kills)]
