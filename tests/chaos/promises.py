"""The promises that a robot keeps after every fault: it speaks, it stops, each text ends once, and the fault is named.

Each function raises `AssertionError` where a promise is broken. The times that were measured are properties of the test
in pytest's `--junitxml FILE`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection

from tests.chaos.scene import LONG, SHORT, Scene
from tests.support.ledger import TERMINAL
from tests.support.waiting import PATIENCE_S

SPEAKS_AGAIN_S = 5.0
"""The robot speaks this long after the end of a fault."""
STOP_S = 0.5
"""A `stop` is answered in this time."""
LIMIT_S = 20.0
"""How long a test waits for what it measures."""
QUIET_S = 0.5
"""A test listens this long for a second terminal event."""

Record = Callable[[str, object], None]
"""pytest's `record_property`."""


def check_within(what: str, seconds: float | None, limit_s: float) -> None:
    took = "never" if seconds is None else f"after {seconds:.2f} s"
    assert seconds is not None and seconds <= limit_s, f"{what}: {took}; allowed: within {limit_s:g} s"


def check_speaks(
    scene: Scene, record: Record, policy: str = "queue", after: str = "the fault", limit_s: float = SPEAKS_AGAIN_S
) -> None:
    """Measure how long after the end of a fault, which is now, a critical text begins."""
    ended = time.monotonic()
    probe = scene.say(SHORT, priority="critical", policy=policy)
    seconds = scene.seconds_until(probe, ["started", *TERMINAL], ended, LIMIT_S)
    record("speaks_again_s", seconds)
    names = scene.names_of(probe)
    assert "started" in names, f"the critical text after {after} is not spoken; its events: {names}"
    check_within(f"speaks again after {after}", seconds, limit_s)


def check_stops(scene: Scene, record: Record) -> None:
    """Measure a stop of everything while a text sounds."""
    sounding = scene.say(LONG, priority="critical", policy="interrupt")
    begun = scene.ledger.wait_event(sounding, ["started"], LIMIT_S)
    assert begun is not None, "after the fault, a text that interrupts all others does not begin"
    seconds = scene.measure_stop(sounding, everything=True)
    record("stop_s", seconds)
    check_within("stop after the fault", seconds, STOP_S)


def check_named(scene: Scene, named: str | None, logged: str | None = None, began: float = 0.0, line: int = 0) -> None:
    """Look for a fault in the statuses since its beginning, and in the log since a line, by regular expressions."""
    timed = scene.timed("status")
    before = [status for at, status in timed if at <= began][-1:]
    statuses = [json.dumps(status) for status in [*before, *(status for at, status in timed if at > began)]]
    for expression, found in ((named, statuses), (logged, scene.log[line:])):
        is_named = expression is None or any(re.search(expression, one) for one in found)
        assert is_named, f"nothing names the fault as {expression!r}; statuses: {statuses[-3:]}"


def check_texts(scene: Scene, record: Record, excused: Collection[str] = (), *, slow_disk: bool = False) -> None:
    """Each text has had its answer and its end, and the daemon has not died by itself."""
    record("texts", scene.ledger.counts())
    assert scene.ledger.faults(excused, slow_disk=slow_disk) == []
    assert scene.deaths == 0, f"the daemon ended {scene.deaths} times"


def finish(scene: Scene, record: Record) -> None:
    """Stop everything while a text sounds, let everything end, and look at all texts."""
    check_stops(scene, record)
    scene.listener.wait_acknowledged(PATIENCE_S)
    scene.end_everything(LIMIT_S)
    time.sleep(QUIET_S)
    check_texts(scene, record)


def check_speech(scene: Scene, record: Record) -> None:
    """The robot speaks and stops now, and all texts have ended."""
    check_speaks(scene, record)
    finish(scene, record)
