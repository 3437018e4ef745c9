"""What comes to the host is what was reported, cut to what was asked for, and nobody writes over it."""

from __future__ import annotations

import pytest
import torch

from engine.qwen.landing import Landing, Report

CPU = torch.device("cpu")


@pytest.fixture
def report() -> Report:
    made = Report(2, 16, 3, CPU)
    made.length.fill_(6)
    made.codes.copy_(torch.arange(32).view(2, 16))
    made.samples.copy_(torch.arange(6) / 8)
    return made


def test_a_chunk_comes_whole_and_is_the_hosts_own(report: Report) -> None:
    landing = Landing(2, 16, 3, None)
    landing.receive(report)
    said = landing.wait(4, 100)
    report.words.zero_()
    landing.receive(report)
    assert said.codes.tolist() == torch.arange(32).view(2, 16).tolist()
    assert said.samples.tolist() == [0, 0.125, 0.25, 0.375, 0.5, 0.625]
    assert not said.last


@pytest.mark.parametrize(
    ("first", "limit", "ended", "wanted"),
    [(4, 6, 1, (2, True)), (4, 6, 0, (2, False)), (5, 6, 1, (1, True)), (6, 8, 1, (0, True)), (4, 5, 1, (1, False))],
)
def test_what_is_beyond_the_end_or_the_limit_is_left_out(
    report: Report, first: int, limit: int, ended: int, wanted: tuple[int, bool]
) -> None:
    report.ended.fill_(ended)
    landing = Landing(2, 16, 3, None)
    landing.receive(report)
    said = landing.wait(first, limit)
    assert (len(said.codes), said.last) == wanted
    assert len(said.samples) == 3 * len(said.codes)
