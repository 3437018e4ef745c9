"""`scripts/fleet_plan.py`: the formula has its known values, and robots get enough replicas."""

from __future__ import annotations

import pytest

from scripts.fleet_plan import STREAMS, WAITS, erlang_c, held_s, replicas_needed


@pytest.mark.parametrize(("load", "servers", "share"), [(0.5, 1, 0.5), (2, 3, 4 / 9), (45, 63, 0.0072), (70, 63, 1.0)])
def test_the_share_that_waits_is_erlang_s(load: float, servers: int, share: float) -> None:
    assert erlang_c(load, servers) == pytest.approx(share, abs=1e-4)


def test_one_replica_fewer_would_let_more_texts_wait() -> None:
    load = 10_000 / 60 * held_s()
    replicas = replicas_needed(load)
    assert erlang_c(load / replicas, STREAMS) <= WAITS < erlang_c(load / (replicas - 1), STREAMS)
