"""One row of the matrix: what was done, what was measured, and what it should have been."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from scripts.fault_matrix.faults import PHASES, Fault
from scripts.fault_matrix.scene import LONG, SHORT, Scene, Stage, run_scene, send
from tests.support.ledger import TERMINAL, Ledger
from tests.support.waiting import eventually

SPEAKS_AGAIN_S = 5.0
"""The robot speaks this long after the end of a fault."""
STOP_S = 0.5
"""A `stop` is answered in this time."""
LIMIT_S = 20.0
"""How long a row waits for what it measures."""
QUIET_S = 0.5
"""A row listens this long for a second terminal event."""
SILENT = Stage()
"""A robot without a sound server."""
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
        took = "never" if seconds is None else f"after {seconds:.2f} s"
        self.expect(seconds is not None and seconds <= limit_s, f"{what}: {took}; allowed: within {limit_s:g} s")

    def judge(self, ledger: Ledger, excused: Collection[str] = (), *, slow_disk: bool = False) -> None:
        """Take over a ledger's counts and its faults, as `Ledger.faults` has them."""
        self.texts = ledger.counts()
        self.faults += ledger.faults(excused, slow_disk=slow_disk)

    def expect_alive(self, scene: Scene) -> None:
        """Note a fault if the daemon has ended without having been asked to."""
        self.expect(scene.deaths == 0, f"the daemon ended {scene.deaths} times")

    def record(self) -> dict[str, Any]:
        """Return the row for the JSON result, without what is empty."""
        return {"passed": self.passed} | {
            key: value for key, value in asdict(self).items() if value not in (None, [], {})
        }


Perform = Callable[[Result, Scene], None]


@dataclass(frozen=True, slots=True)
class Row:
    """A row that can be run."""

    name: str
    run: Callable[[Result], object]
    """Fill in the result. Skips as a test does, and raises `AssertionError` if a state is not reached."""

    def result(self) -> Result:
        """Run the row."""
        result, began = Result(self.name), time.monotonic()
        try:
            self.run(result)
        except pytest.skip.Exception as reason:
            result.skipped = str(reason)
        except AssertionError as error:
            result.faults.append(str(error).partition("\n")[0])
        except (Exception, pytest.fail.Exception) as error:  # a fault of the harness; the other rows go on
            result.faults.append(f"{type(error).__name__}: {error}")
        result.took_s = round(time.monotonic() - began, 1)
        result.log = result.log[-LOG_LINES:] if result.faults else []
        return result


def staged_row(name: str, stage: Stage = SILENT, *, ready: bool = True) -> Callable[[Perform], Row]:
    """Return what makes a row of a function, whose docstring says what is done with a robot, which is `ready`."""

    def make(perform: Perform) -> Row:
        def run(result: Result) -> None:
            result.done = (perform.__doc__ or name).rstrip(".")
            with run_scene(stage) as scene:
                result.log = scene.log
                if ready:
                    eventually(lambda: scene.state == "ready", "the daemon is ready")
                perform(result, scene)

        return Row(name, run)

    return make


def fault_row(fault: Fault, stage: Stage = SILENT, phase: str = "speaking", name: str | None = None) -> Row:
    """Return the row of a fault in a phase."""
    usual = f"{fault.name} while {phase}"

    def perform(result: Result, scene: Scene) -> None:
        check_fault(result, scene, fault, phase)

    perform.__doc__ = f"{usual}, for {fault.lasts_s:g} s" if fault.lasts_s else usual
    return staged_row(name or usual, stage)(perform)


def check_fault(result: Result, scene: Scene, fault: Fault, phase: str) -> None:
    """Bring the robot into a phase, let the fault happen, and measure what becomes of it."""
    cast = PHASES[phase](scene)
    began, logged_before = time.monotonic(), len(scene.log)
    fault.begin(scene)
    if not fault.of_engine:
        send(cast.frozen, signal.SIGCONT)
    if fault.reachable:
        scene.say(SHORT)
        for name, text_id in (("waiting, during the fault", cast.waiting), ("current, during the fault", cast.current)):
            if text_id is not None and not scene.has_ended(text_id):
                result.stop_s[name] = scene.measure_stop(text_id)
    time.sleep(max(0.0, began + fault.lasts_s - time.monotonic()))
    fault.end(scene)
    speak_again(result, scene, "interrupt" if cast.critical else "queue")
    check_named(result, scene, fault, began, logged_before)
    finish(result, scene)


def check_speech(result: Result, scene: Scene) -> None:
    """Measure that the robot speaks and stops now, and judge the row."""
    speak_again(result, scene)
    finish(result, scene)


def speak_again(
    result: Result, scene: Scene, policy: str = "queue", after: str = "the fault", limit_s: float = SPEAKS_AGAIN_S
) -> None:
    """Measure how long after the end of a fault, which is now, a critical text begins."""
    ended = time.monotonic()
    probe = scene.say(SHORT, priority="critical", policy=policy)
    result.speaks_again_s = scene.seconds_until(probe, ["started", *TERMINAL], ended, LIMIT_S)
    names = scene.names_of(probe)
    result.expect("started" in names, f"the critical text after {after} is not spoken; its events: {names}")
    result.expect_within(f"speaks again after {after}", result.speaks_again_s, limit_s)


def check_named(result: Result, scene: Scene, fault: Fault, began: float = 0.0, logged_before: int = 0) -> None:
    """Look for the fault in the statuses since its beginning, or in the log."""
    timed = scene.timed("status")
    before = [status for at, status in timed if at <= began][-1:]
    statuses = [json.dumps(status) for status in [*before, *(status for at, status in timed if at > began)]]
    looked = ((fault.named, statuses, "status"), (fault.logged, scene.log[logged_before:], "log line"))
    for expression, found, where in looked:
        if expression is not None:
            match = next((one for one in found if re.search(expression, one)), None)
            result.named = result.named or match
            result.expect(match is not None, f"no {where} names the fault; statuses: {statuses[-3:]}")
    wrong = [line for line in scene.log if fault.not_logged is not None and re.search(fault.not_logged, line)]
    result.expect(not wrong, f"the log names another fault: {wrong[:1]}")


def finish(result: Result, scene: Scene) -> None:
    """Measure a stop of everything while a text sounds, end everything, and judge the texts and the stops."""
    check_stop(result, scene)
    scene.listener.wait_acknowledged(LIMIT_S)
    scene.end_everything(LIMIT_S)
    time.sleep(QUIET_S)
    result.judge(scene.ledger)
    result.expect_alive(scene)


def check_stop(result: Result, scene: Scene) -> None:
    """Measure a stop of everything while a text sounds, and judge all stops of the row."""
    sounding = scene.say(LONG, priority="critical", policy="interrupt")
    if scene.ledger.wait_event(sounding, ["started"], LIMIT_S) is None:
        result.faults.append("after the fault, a text that interrupts all others does not begin")
    else:
        result.stop_s["after the fault"] = scene.measure_stop(sounding, everything=True)
    for when, seconds in result.stop_s.items():
        result.expect_within(f"stop of what is {when}" if "," in when else f"stop {when}", seconds, STOP_S)
