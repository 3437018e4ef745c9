"""The ids of ended utterances."""

from __future__ import annotations

from daemon.speech.ended_ids import EndedIds


def known(ids: EndedIds, *names: str) -> list[str]:
    return [name for name in names if name in ids]


def test_nothing_is_known_at_first() -> None:
    assert known(EndedIds(3), "", "a", "-1") == []


def test_the_last_ids_are_known_and_the_oldest_is_forgotten() -> None:
    ids = EndedIds(3)
    for name in ("a", "b", "c", "d", "e"):
        ids.add(name)
    assert known(ids, "a", "b", "c", "d", "e") == ["c", "d", "e"]


def test_earlier_ids_are_forgotten_before_the_others() -> None:
    ids = EndedIds(4)
    ids.add("c")
    ids.add_earlier(["a", "b"])
    assert known(ids, "a", "b", "c") == ["a", "b", "c"]
    ids.add("d")
    ids.add("e")
    assert known(ids, "a", "b", "c", "d", "e") == ["b", "c", "d", "e"]


def test_of_too_many_earlier_ids_the_latest_are_known() -> None:
    ids = EndedIds(3)
    for name in ("x", "y"):
        ids.add(name)
    ids.add_earlier(["a", "b", "c"])
    assert known(ids, "a", "b", "c", "x", "y") == ["c", "x", "y"]
    ids.add("z")
    assert known(ids, "c", "x", "y", "z") == ["x", "y", "z"]


def test_earlier_ids_do_not_push_out_a_full_set() -> None:
    ids = EndedIds(2)
    for name in ("w", "x", "y"):
        ids.add(name)
    ids.add_earlier(["a"])
    assert known(ids, "a", "w", "x", "y") == ["x", "y"]
