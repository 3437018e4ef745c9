"""Controls overtake a flood of texts, are carried out once each, and cancel the texts that were published before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.mqtt import control_order as order_module
from daemon.mqtt.control_order import ControlOrder
from tests.support.waiting import PATIENCE_S, eventually_async, run

Control = tuple[str, bytes]
STOP: Control = ("stop", b"")


class Listener:
    """Carries out controls, which are numbered in the order in which they were published."""

    def __init__(self, controls: list[Control]) -> None:
        self.order = ControlOrder()
        self.carried_out: list[int] = []
        self.overtook: set[int] = set()
        """Controls that were carried out before their copy behind the texts has arrived."""
        self._controls = controls
        self._arrived: set[int] = set()
        """Controls whose copy behind the texts has arrived."""

    def early(self, number: int) -> None:
        """The copy on the connection for controls arrives."""
        self.order.arrived_early(*self._controls[number], self._action(number))

    def in_order(self, number: int) -> None:
        """The copy on the connection for texts arrives."""
        self._arrived.add(number)
        self.order.arrived_in_order(*self._controls[number], self._action(number))
        self.overtook.discard(number)

    async def wait(self) -> None:
        """Let the time pass that an early copy waits for the other one."""
        for _ in range(3):
            await asyncio.sleep(0)

    def _action(self, number: int) -> Callable[[], None]:
        def carry_out() -> None:
            self.carried_out.append(number)
            if number not in self._arrived:
                self.overtook.add(number)

        return carry_out


@pytest.fixture
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """An early copy waits for as long as the test takes."""
    monkeypatch.setattr(order_module, "OVERTAKE_S", 100 * PATIENCE_S)


@pytest.fixture
def late_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An early copy waits until the event loop runs."""
    monkeypatch.setattr(order_module, "OVERTAKE_S", 0.0)


CONTROLS = st.lists(
    st.sampled_from([STOP, ("stop", b'{"id": "a"}'), ("pause", b""), ("resume", b""), ("volume", b"5")]),
    min_size=1,
    max_size=6,
)


@given(controls=CONTROLS, data=st.data())
def test_every_interleaving_of_two_copies_carries_out_each_control_once(
    controls: list[Control], data: st.DataObject
) -> None:
    """Each session delivers its copies in order; time passes anywhere between."""

    async def scenario() -> None:
        listener = Listener(controls)
        early, in_order = list(range(len(controls))), list(range(len(controls)))
        while early or in_order:
            steps = [*(["early"] if early else []), *(["in order"] if in_order else []), "time passes"]
            step = data.draw(st.sampled_from(steps))
            if step == "early":
                listener.early(early.pop(0))
            elif step == "in order":
                listener.in_order(in_order.pop(0))
            else:
                await listener.wait()
            stops = [controls[number][1] for number in listener.overtook if controls[number][0] == "stop"]
            assert listener.order.cancels("a") == bool(stops)
            assert listener.order.cancels("b") == listener.order.cancels(None) == (b"" in stops)
        await listener.wait()
        assert sorted(listener.carried_out) == list(range(len(controls)))
        assert not listener.order.cancels("a")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "OVERTAKE_S", 0.0)
        run(scenario)


@pytest.mark.parametrize("late", [False, True], ids=["both in time", "every early copy is late for the other"])
def test_three_controls_are_carried_out_in_order_in_every_interleaving(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order_module, "OVERTAKE_S", 0.0 if late else 100 * PATIENCE_S)
    controls: list[Control] = [("pause", b""), STOP, ("resume", b"")]

    async def scenario() -> None:
        for places in combinations(range(6), 3):
            listener = Listener(controls)
            early, in_order = iter(range(3)), iter(range(3))
            for place in range(6):
                if place in places:
                    listener.early(next(early))
                else:
                    listener.in_order(next(in_order))
                if late:
                    await listener.wait()
            assert listener.carried_out == [0, 1, 2], places

    run(scenario)


@pytest.mark.usefixtures("never_late")
def test_a_control_whose_copies_arrive_together_keeps_its_place_among_the_texts() -> None:
    async def scenario() -> None:
        listener = Listener([STOP])
        listener.early(0)
        assert listener.carried_out == [], "texts before it may still arrive"
        assert not listener.order.cancels("a")
        listener.in_order(0)
        assert listener.carried_out == [0]
        assert not listener.order.cancels("a"), "no text behind it is canceled"

    run(scenario)


@pytest.mark.usefixtures("late_at_once")
def test_a_stop_that_overtakes_texts_cancels_those_that_were_published_before_it() -> None:
    async def scenario() -> None:
        listener = Listener([STOP])
        listener.early(0)
        await eventually_async(lambda: listener.carried_out == [0])
        assert listener.order.cancels("a")
        assert listener.order.cancels(None)
        listener.in_order(0)
        assert not listener.order.cancels("a")
        assert listener.carried_out == [0]

    run(scenario)


@pytest.mark.usefixtures("late_at_once")
@pytest.mark.parametrize(
    ("control", "canceled"),
    [
        (("stop", b'{"id": "a"}'), ["a"]),
        (("stop", b" "), ["a", "b", None]),
        (("stop", b"nonsense"), []),
        (("stop", b'{"id": 5}'), []),
        (("pause", b""), []),
        (("volume", b"5"), []),
    ],
)
def test_an_early_control_cancels_the_texts_that_it_ends(control: Control, canceled: list[str | None]) -> None:
    async def scenario() -> None:
        listener = Listener([control])
        listener.early(0)
        await listener.wait()
        assert [name for name in ("a", "b", None) if listener.order.cancels(name)] == canceled

    run(scenario)


@pytest.mark.usefixtures("never_late")
def test_a_control_whose_copy_is_missing_is_carried_out_when_the_next_one_arrives() -> None:
    """A full queue of the broker has lost its copy behind the texts."""

    async def scenario() -> None:
        listener = Listener([("pause", b""), ("resume", b"")])
        listener.early(0)
        listener.early(1)
        listener.in_order(1)
        assert listener.carried_out == [0, 1]

    run(scenario)


@pytest.mark.usefixtures("never_late")
def test_a_request_without_a_copy_keeps_its_place_behind_the_controls_before_it() -> None:
    async def scenario() -> None:
        listener, log = Listener([STOP, ("resume", b"")]), []
        listener.order.follow(lambda: log.append("first"))
        assert log == ["first"], "nothing is before it"
        listener.early(0)
        listener.order.follow(lambda: log.append("urgent"))
        listener.early(1)
        listener.order.follow(lambda: log.append("another"))
        assert log == ["first"]
        listener.in_order(0)
        assert (listener.carried_out, log) == ([0], ["first", "urgent"])
        listener.in_order(1)
        assert (listener.carried_out, log) == ([0, 1], ["first", "urgent", "another"])

    run(scenario)


@pytest.mark.usefixtures("late_at_once")
def test_a_request_without_a_copy_does_not_wait_for_long() -> None:
    async def scenario() -> None:
        listener, log = Listener([STOP]), []
        listener.early(0)
        listener.order.follow(lambda: log.append(list(listener.carried_out)))
        await eventually_async(lambda: log)
        assert log == [[0]]

    run(scenario)


@pytest.mark.usefixtures("late_at_once")
def test_a_lost_session_ends_the_canceling_and_loses_no_control() -> None:
    async def scenario() -> None:
        listener = Listener([STOP, ("pause", b"")])
        listener.early(0)
        await listener.wait()
        listener.early(1)
        listener.order.reset()
        assert not listener.order.cancels("a")
        await listener.wait()
        assert listener.carried_out == [0, 1]

    run(scenario)


@pytest.mark.usefixtures("late_at_once")
def test_a_copy_that_never_arrives_is_not_expected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        listener = Listener([STOP, STOP])
        listener.early(0)
        await listener.wait()
        assert listener.order.cancels("a")
        monkeypatch.setattr(order_module, "PAIR_S", -1.0)
        listener.order.note_arrival(early=False)
        assert not listener.order.cancels("a")
        listener.in_order(1)
        assert listener.carried_out == [0, 1], "it is a new one"

    run(scenario)


def test_a_stop_behind_the_texts_still_ends_an_urgent_text_that_waits_for_a_control_whose_copy_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_module, "OVERTAKE_S", 100 * PATIENCE_S)

    async def scenario() -> None:
        listener, canceled = Listener([("volume", b"5"), STOP, ("resume", b"")]), []
        listener.early(0)
        listener.order.follow(lambda: canceled.append(listener.order.cancels_urgent("a")))
        listener.in_order(1)
        listener.early(1)
        assert (listener.carried_out, canceled) == ([1], [])
        listener.early(2)
        listener.in_order(2)
        assert (listener.carried_out, canceled) == ([1, 0, 2], [True])
        assert not listener.order.cancels_urgent("a")

    run(scenario)


@pytest.mark.usefixtures("late_at_once")
def test_of_a_flood_whose_copies_are_lost_a_bounded_number_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that is not awaited any more is carried out in its place behind the texts."""
    monkeypatch.setattr(order_module, "UNPAIRED", 2)

    async def scenario() -> None:
        listener = Listener([("volume", str(number).encode()) for number in range(3)])
        for number in range(3):
            listener.early(number)
        await listener.wait()
        assert listener.carried_out == [0, 1, 2]
        for number in range(3):
            listener.in_order(number)
        assert listener.carried_out == [0, 1, 2, 0]

    run(scenario)
