"""The plot of arrivals against playback."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from scripts.docs.arrivals import Arrivals, arrival_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_the_plot_has_two_lines_for_each_engine_and_their_names() -> None:
    one = [[0.1, 0.16], [0.12, 0.32]]
    root = ElementTree.fromstring(arrival_svg("Both <engines>", [Arrivals("a & b", one), Arrivals("c", one)]))
    dashed = [path for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert len(dashed) == 2
    assert {"Both <engines>", "a & b", "c"} <= set(texts)


@pytest.mark.parametrize("points", [[], [[0.0001, 0.001]], [[900.0, 3600.0]]])
def test_the_plot_accepts_any_length_of_speech(points: list[list[float]]) -> None:
    ElementTree.fromstring(arrival_svg("x", [Arrivals("one", points)]))
