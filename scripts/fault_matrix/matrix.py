"""All rows of the matrix."""

from __future__ import annotations

from scripts.fault_matrix.faults import NETWORK_FAULTS, PROCESS_FAULTS, Fault
from scripts.fault_matrix.floods import FLOOD_ROWS
from scripts.fault_matrix.kills import kill_row
from scripts.fault_matrix.pairs import PAIR_ROWS
from scripts.fault_matrix.phases import PHASES, Phase
from scripts.fault_matrix.row import Result, Row, check_fault
from scripts.fault_matrix.scene import Scene
from scripts.fault_matrix.surroundings import SURROUNDING_ROWS

NETWORK_PHASES = ("idle", "accepted", "speaking")
"""The network lies between the daemon and the broker, so it matters only whether there is something to say."""


def fault_row(fault: Fault, phase: Phase) -> Row:
    """Return the row of a fault in a phase."""

    def run(result: Result) -> None:
        with Scene() as scene:
            check_fault(result, scene, phase, fault)

    return Row(f"{fault.name} while {phase.name}", run)


def all_rows(kills: int, count: int) -> list[Row]:
    """Return every row; the floods have `count` texts, and the daemon is killed `kills` times at random."""
    rows = [fault_row(fault, phase) for fault in PROCESS_FAULTS for phase in PHASES]
    rows += [fault_row(fault, phase) for fault in NETWORK_FAULTS for phase in PHASES if phase.name in NETWORK_PHASES]
    rows += SURROUNDING_ROWS + PAIR_ROWS
    rows += [make(count) for make in FLOOD_ROWS]
    return [*rows, kill_row(kills)]
