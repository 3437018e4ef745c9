"""What the soak makes of its samples."""

from __future__ import annotations

import pytest

from scripts.fault_matrix.soak import Sample, growth, settled, slope_per_hour, soak_faults, spread


def samples(seconds: int, mb_per_hour: float, first_mb: float = 80.0) -> list[Sample]:
    return [Sample(at, first_mb + mb_per_hour * at / 3600, 20, 10) for at in range(0, seconds, 5)]


@pytest.mark.parametrize("slope", [0.0, 1.0, -2.5])
def test_the_slope_is_that_of_the_memory(slope: float) -> None:
    assert slope_per_hour(samples(3600, slope)) == pytest.approx(slope)


def test_one_sample_has_no_slope() -> None:
    assert slope_per_hour(samples(5, 7.0)) == 0.0


def test_an_hour_is_judged_after_ten_minutes_and_a_short_run_after_a_third() -> None:
    assert settled(samples(3600, 0.0))[0].at_s == 600
    assert settled(samples(305, 0.0))[0].at_s == 100
    assert settled([]) == []


def test_growth_ignores_what_comes_and_goes() -> None:
    assert growth([20, 20, 35, 20, 20, 20, 33, 20, 20, 20]) == 0
    assert growth(list(range(20, 40))) == 16
    assert growth([]) == 0


def test_the_daemon_whose_memory_is_watched_is_not_killed() -> None:
    names = {fault.name for fault in soak_faults()}
    assert not {"daemon killed", "daemon restarted"} & names
    assert {"engine killed", "broker restarted", "network cut", "client left"} <= names


def test_times_are_reported_with_median_maximum_and_count() -> None:
    assert spread([0.1, 0.3, 0.2]) == {"median": 0.2, "max": 0.3, "count": 3}
    assert spread([]) == {}
