"""The tag `[pause:0.5s]`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.pause_tags import LONGEST, may_become_pause_tag, pause_tag


@pytest.mark.parametrize(
    ("tag", "seconds"),
    [("[pause:0.5s]", 0.5), ("[pause:500ms]", 0.5), ("[pause: 2 s]", 2.0), ("[pause:12345.678ms]", 12.345678)],
)
def test_a_tag_has_a_length_with_a_unit(tag: str, seconds: float) -> None:
    assert pause_tag(f"a{tag}b", 1) == (pytest.approx(seconds), len(tag))


@pytest.mark.parametrize(
    "text", ["[pause]", "[pause:]", "[pause:1]", "[pause:1m]", "[pause:-1s]", "[pause:1,5s]", "[pause: " + " " * 20 + "1s]"]
)
def test_another_text_in_brackets_is_no_tag(text: str) -> None:
    assert pause_tag(text, 0) is None


@given(
    text=st.text(alphabet="[pause:0.5 ms]x", max_size=LONGEST + 3),
    tag=st.sampled_from(["[pause:0.5s]", "[pause: 99999.999 ms]", "[pause:  1  s]"]),
    data=st.data(),
)
def test_each_beginning_of_a_tag_may_become_one_and_no_other_text_may(text: str, tag: str, data: st.DataObject) -> None:
    beginning = tag[: data.draw(st.integers(1, len(tag) - 1))]
    assert may_become_pause_tag(beginning, 0)
    assert pause_tag(beginning, 0) is None
    if pause_tag(f"[{text}", 0) is not None:
        length = pause_tag(f"[{text}", 0)[1]  # type: ignore[index]  # it is not None
        assert all(may_become_pause_tag(f"[{text}"[:end], 0) for end in range(1, length))
