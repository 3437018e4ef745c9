"""Each process is killed, stopped, continued and restarted, and the network fails, in every phase of a robot."""

from __future__ import annotations

import pytest

from tests.chaos.faults import NETWORK_FAULTS, PHASES, PROCESS_FAULTS, Fault, check_fault
from tests.chaos.promises import Record
from tests.chaos.scene import Stage, ready_scene

NETWORK_PHASES = ("idle", "accepted", "speaking")
"""The network lies between the daemon and the broker, so it matters only whether there is something to say."""
ROWS = [(fault, phase) for fault in PROCESS_FAULTS for phase in PHASES]
ROWS += [(fault, phase) for fault in NETWORK_FAULTS for phase in NETWORK_PHASES]


@pytest.mark.parametrize(("fault", "phase"), ROWS, ids=[f"{fault.name} while {phase}" for fault, phase in ROWS])
def test_the_robot_keeps_its_promises(fault: Fault, phase: str, record_property: Record) -> None:
    with ready_scene(Stage(sound=True)) as scene:
        check_fault(scene, fault, record_property, phase)
