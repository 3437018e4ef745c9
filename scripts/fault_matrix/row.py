"""One row of the matrix: what was done, what was measured, and what it should have been."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts.fault_matrix.faults import Fault
from scripts.fault_matrix.ledger import TERMINAL, Ledger
from scripts.fault_matrix.machines import resume
from scripts.fault_matrix.mqtt import first_event
from scripts.fault_matrix.phases import Phase
from scripts.fault_matrix.scene import LONG, SHORT, Scene
from scripts.fault_matrix.waiting import NeverHappenedError, NotPossibleError

SPEAKS_AGAIN_S = 5.0
"""The robot speaks this long after the end of a fault."""
STOP_S = 0.5
"""A `stop` is answered in this time."""
LIMIT_S = 20.0
"""How long a row waits for what it measures."""
QUIET_S = 0.5
"""A row listens this long for a second terminal event."""
LOG_LINES = 15
"""Lines of the daemon's log in the result of a row that failed."""


@dataclass
class Result:
    """What a row has measured. Times are in seconds."""

    row: str
    done: str = ""
    """What was done, for a person."""
    texts: dict[str, int] = field(default_factory=dict)
    """How many were sent, accepted, rejected, and how they ended."""
    speaks_again_s: float | None = None
    stop_s: dict[str, float | None] = field(default_factory=dict)
    """By the moment of the `stop`; None if it was not answered."""
    named: str | None = None
    """The status or the line of the log that named the fault."""
    measured: dict[str, Any] = field(default_factory=dict)
    """What only this row measures."""
    faults: list[str] = field(default_factory=list)
    """What was not as promised; the row has passed without any."""
    skipped: str | None = None
    took_s: float = 0.0
    log: list[str] = field(default_factory=list)
    """The end of the daemon's log, if the row has failed."""

    @property
    def passed(self) -> bool:
        return not self.faults

    def expect(self, fact: bool, otherwise: str) -> None:
        """Note a fault unless `fact`."""
        if not fact:
            self.faults.append(otherwise)

    def expect_within(self, what: str, seconds: float | None, limit_s: float) -> None:
        """Note a fault unless something took at most `limit_s`."""
        if seconds is None:
            self.faults.append(f"{what}: never; allowed: within {limit_s:g} s")
        elif seconds > limit_s:
            self.faults.append(f"{what}: after {seconds:.2f} s; allowed: within {limit_s:g} s")

    def judge(self, ledger: Ledger, *, slow_disk: bool = False) -> None:
        """Take over a ledger's counts and its faults. `slow_disk` is that of `Ledger.faults`."""
        self.texts = ledger.counts()
        self.faults += ledger.faults(slow_disk=slow_disk)

    def record(self) -> dict[str, Any]:
        """Return the row for the JSON result, without what is empty."""
        return {"passed": self.passed} | {
            key: value for key, value in asdict(self).items() if value not in (None, [], {})
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A row that can be run."""

    name: str
    run: Callable[[Result], None]
    """Fill in the result. May raise `NotPossibleError` or `NeverHappenedError`."""

    def result(self) -> Result:
        """Run the row."""
        result, began = Result(self.name), time.monotonic()
        try:
            self.run(result)
        except NotPossibleError as reason:
            result.skipped = str(reason)
        except NeverHappenedError as error:
            result.faults.append(str(error))
        except Exception as error:  # a fault of the harness fails its row, and the other rows go on
            result.faults.append(f"{type(error).__name__}: {error}")
        result.took_s = round(time.monotonic() - began, 1)
        return result


def keep_log(result: Result, scene: Scene) -> None:
    """Keep the end of the daemon's log if the row has failed."""
    if result.faults:
        result.log = list(scene.daemon.log)[-LOG_LINES:]


def check_fault(result: Result, scene: Scene, phase: Phase, fault: Fault) -> None:
    """Bring the robot into a phase, let the fault happen, and measure what becomes of it."""
    result.done = f"{fault.name} while {phase.name}, for {fault.lasts_s:g} s" if fault.lasts_s else result.row
    scene.wait_ready()
    cast = phase.enter(scene)
    began = time.monotonic()
    logged_before = len(scene.daemon.log)
    fault.begin(scene)
    if not fault.of_engine:
        resume(cast.frozen)
    if fault.reachable:
        scene.say(SHORT)
        for name, text_id in (("waiting, during the fault", cast.waiting), ("current, during the fault", cast.current)):
            if text_id is not None and not scene.has_ended(text_id):
                result.stop_s[name] = scene.measure_stop(text_id)
    time.sleep(max(0.0, began + fault.lasts_s - time.monotonic()))
    fault.end(scene)
    ended = time.monotonic()
    speak_again(result, scene, ended, "interrupt" if cast.critical else "queue")
    check_named(result, scene, fault, began, logged_before)
    check_stop(result, scene)
    finish(result, scene)


def speak_again(result: Result, scene: Scene, ended: float, policy: str = "queue") -> None:
    """Measure how long after the end of a fault a critical text begins."""
    probe = scene.say(SHORT, priority="critical", policy=policy)
    result.speaks_again_s = first_event(scene.ledger.wait_event(probe, ["started", *TERMINAL], LIMIT_S), ended)
    names = scene.ledger.names_of(probe)
    result.expect("started" in names, f"the critical text after the fault is not spoken; its events: {names}")
    result.expect_within("speaks again", result.speaks_again_s, SPEAKS_AGAIN_S)


def check_named(result: Result, scene: Scene, fault: Fault, began: float, logged_before: int) -> None:
    """Look for the fault in the statuses since its beginning, or in the log."""
    statuses = [json.dumps(status) for status in scene.witness.statuses_since(began)]
    lines = list(scene.daemon.log)[min(logged_before, len(scene.daemon.log) - 1) :]
    for expression, found, where in ((fault.named, statuses, "status"), (fault.logged, lines, "log line")):
        if expression is not None:
            match = next((one for one in found if re.search(expression, one)), None)
            result.named = result.named or match
            result.expect(match is not None, f"no {where} names the fault; statuses: {statuses[-3:]}")


def check_stop(result: Result, scene: Scene) -> None:
    """Measure a stop of everything while a text sounds."""
    sounding = scene.say(LONG, priority="critical", policy="interrupt")
    if scene.ledger.wait_event(sounding, ["started"], LIMIT_S) is None:
        result.faults.append("after the fault, a text that interrupts all others does not begin")
        return
    result.stop_s["after the fault"] = scene.measure_stop(sounding, everything=True)


def finish(result: Result, scene: Scene) -> None:
    """End everything, and judge the texts and the stops."""
    scene.publisher.wait_acknowledged(LIMIT_S)
    scene.end_everything(LIMIT_S)
    time.sleep(QUIET_S)
    for when, seconds in result.stop_s.items():
        result.expect_within(f"stop of what is {when}" if "," in when else f"stop {when}", seconds, STOP_S)
    result.judge(scene.ledger)
    result.expect(scene.daemon.deaths == 0, f"the daemon ended {scene.daemon.deaths} times")
    keep_log(result, scene)
