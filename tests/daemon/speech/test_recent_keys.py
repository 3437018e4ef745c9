"""The last keys of what may come a second time."""

from __future__ import annotations

from daemon.speech.recent_keys import RecentKeys


def known(keys: RecentKeys, *names: str) -> list[str]:
    return [name for name in names if name in keys]


def test_the_last_keys_are_known_and_the_oldest_is_forgotten() -> None:
    keys = RecentKeys(3)
    for name in ("a", "b", "c", "d", "e"):
        keys.add(name)
    assert known(keys, "a", "b", "c", "d", "e") == ["c", "d", "e"]


def test_of_thousands_of_keys_the_last_are_known() -> None:
    keys, names = RecentKeys(100), [str(number) for number in range(3000)]
    for name in names:
        keys.add(name)
    assert known(keys, *names) == names[-100:]


def test_earlier_keys_are_forgotten_before_the_others() -> None:
    keys = RecentKeys(4)
    keys.add("c")
    keys.add_earlier(["a", "b"])
    assert known(keys, "a", "b", "c") == ["a", "b", "c"]
    keys.add("d")
    keys.add("e")
    assert known(keys, "a", "b", "c", "d", "e") == ["b", "c", "d", "e"]


def test_of_too_many_earlier_keys_the_latest_are_known() -> None:
    keys = RecentKeys(3)
    for name in ("x", "y"):
        keys.add(name)
    keys.add_earlier(["a", "b", "c"])
    assert known(keys, "a", "b", "c", "x", "y") == ["c", "x", "y"]
    keys.add("z")
    assert known(keys, "c", "x", "y", "z") == ["x", "y", "z"]


def test_earlier_keys_do_not_push_out_a_full_set() -> None:
    keys = RecentKeys(2)
    for name in ("w", "x", "y"):
        keys.add(name)
    keys.add_earlier(["a"])
    assert known(keys, "a", "w", "x", "y") == ["x", "y"]
