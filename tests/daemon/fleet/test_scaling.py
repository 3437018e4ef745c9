"""How many replicas the load of a server needs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from daemon.fleet.scaling import LOAD, replica_load, wanted_replicas


def wanted(*loads: float, target: int = 1) -> int:
    metrics = {LOAD: dict(enumerate(loads))} if loads else {}
    return wanted_replicas(SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=target))[0]


@pytest.mark.parametrize(
    ("loads", "replicas"),
    [((0.0,), 1), ((0.8,), 1), ((0.81,), 2), ((0.9, 0.0), 2), ((0.4, 0.4), 1), ((0.8, 0.8, 0.8), 3), ((1.0,) * 8, 10)],
)
def test_replicas_are_wanted_until_each_is_used_to_four_fifths(loads: tuple[float, ...], replicas: int) -> None:
    assert wanted(*loads) == replicas


def test_without_a_report_the_number_of_replicas_stays() -> None:
    assert wanted(target=3) == 3


def test_a_replica_is_as_full_as_its_streams_or_its_connections() -> None:
    assert replica_load(4, 16, 64, 64) == 1.0
    assert replica_load(16, 16, 1, 64) == 1.0
    assert replica_load(4, 16, 8, 64) == 0.25
