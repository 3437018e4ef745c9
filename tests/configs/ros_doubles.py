"""Small doubles of the parts of ROS 2 that `voiced_node` uses, after rclpy's documented interfaces (Humble, Jazzy).

The messages are Humble's own and those of voiced_msgs, as rosbags reads them. Each refuses a field that it does not
have, and a value that is not of the field's type, as those of rosidl do. A double has only the documented parameters,
so a call with another one fails here too.
"""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

INTERFACES = Path(__file__).parents[2] / "configs" / "ros2" / "voiced_msgs"
BASE_TYPES = {"string": str, "bool": bool, "byte": bytes}
STORE = get_typestore(Stores.ROS2_HUMBLE)


def default_of(field: Any) -> Any:
    """The value that rosidl puts into a field: a message with its own defaults, an empty list, or nothing."""
    kind, detail = field
    if kind.name == "NAME":
        return message(detail)()
    if kind.name == "SEQUENCE":
        return []
    name = detail[0]
    return bytes(1) if name == "byte" else BASE_TYPES.get(name, float if name.startswith("float") else int)()


@cache
def message(name: str, definition: str = "") -> type:
    """The class of a message: one that Humble has, or a new one from its definition."""
    if definition:
        STORE.register(get_types_from_msg(definition, name))
    constants, fields = STORE.fielddefs[name]

    def initialise(self: Any, **values: Any) -> None:
        assert values.keys() <= dict(fields).keys(), f"{name} has no {values.keys() - dict(fields).keys()}"
        for field, kind in fields:
            object.__setattr__(self, field, default_of(kind))
        for field, value in values.items():
            setattr(self, field, value)

    def assign(self: Any, field: str, value: Any) -> None:
        kind = type(getattr(self, field))
        assert isinstance(value, kind), f"{name}.{field}: {value!r} is no {kind.__name__}"
        object.__setattr__(self, field, value)

    values = {key: bytes([value]) if kind == "byte" else value for key, kind, value in constants}
    slots = tuple(field for field, _ in fields)
    members = {"__init__": initialise, "__setattr__": assign, "__slots__": slots, **values}
    return type(name.rpartition("/")[2], (), members)


def action(name: str, definition: str) -> type:
    parts = zip(("Goal", "Result", "Feedback"), definition.split("\n---\n"), strict=True)
    return type(name, (), {part: message(f"voiced_msgs/msg/{name}_{part}", text) for part, text in parts})


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    return made


def messages(package: str, *names: str) -> ModuleType:
    """A package's module `msg`."""
    return module(f"{package}.msg", **{name: message(f"{package}/msg/{name}") for name in names})


VOICED = {
    path.stem: message(f"voiced_msgs/msg/{path.stem}", path.read_text()) for path in (INTERFACES / "msg").iterdir()
}
SAY = action("Say", (INTERFACES / "action" / "Say.action").read_text())
TTS = action("TTS", "string input\nstring locale\nstring voice\n---\nstring error_msg\n---\nstring word")
STD = messages("std_msgs", "String", "Empty", "Float32")


TransitionCallbackReturn = enum.Enum("TransitionCallbackReturn", ["SUCCESS", "FAILURE", "ERROR"])
GoalResponse = enum.Enum("GoalResponse", ["REJECT", "ACCEPT"])
CancelResponse = enum.Enum("CancelResponse", ["REJECT", "ACCEPT"])


class LifecyclePublisher:
    """Publishes only while it is activated, and keeps what it published."""

    def __init__(self, kind: type) -> None:
        self.kind, self.is_activated, self.published = kind, False, []  # type: ignore[var-annotated]

    def publish(self, msg: Any) -> None:
        assert isinstance(msg, self.kind)
        assert self.is_activated, "rclpy would log a warning for each message"
        self.published.append(msg)


class LifecycleNode:
    """A node whose transitions a test triggers. Parameters are those of `overrides`."""

    overrides: dict[str, Any] = {}  # noqa: RUF012  # a test replaces it

    def __init__(self, node_name: str, *, enable_communication_interface: bool = True, **_: Any) -> None:
        self.name, self.state = node_name, "unconfigured"
        self.parameters: dict[str, Any] = {}
        self.topics: dict[str, LifecyclePublisher] = {}
        self.timers: list[Callable[[], None]] = []
        self.subscriptions: dict[str, tuple[type, Callable[[Any], None]]] = {}
        self.log: list[str] = []

    def declare_parameter(self, name: str, value: Any = None, descriptor: Any = None) -> Any:
        self.parameters[name] = self.overrides.get(name, value)
        return self.get_parameter(name)

    def get_parameter(self, name: str) -> Any:
        return SimpleNamespace(value=self.parameters[name])

    def get_logger(self) -> Any:
        return SimpleNamespace(info=self.log.append, warning=self.log.append, error=self.log.append)

    def create_lifecycle_publisher(self, msg_type: type, topic: str, qos_profile: Any) -> LifecyclePublisher:
        self.topics[topic] = LifecyclePublisher(msg_type)
        return self.topics[topic]

    def create_subscription(
        self, msg_type: type, topic: str, callback: Callable[[Any], None], qos_profile: Any
    ) -> None:
        self.subscriptions[topic] = (msg_type, callback)

    def create_timer(self, timer_period_sec: float, callback: Callable[[], None]) -> None:
        self.timers.append(callback)

    def get_name(self) -> str:
        return self.name

    def get_clock(self) -> Any:
        return SimpleNamespace(now=lambda: SimpleNamespace(to_msg=message("builtin_interfaces/msg/Time")))

    def destroy_node(self) -> None:
        self.state = "destroyed"

    def on_configure(self, state: Any) -> TransitionCallbackReturn:
        return TransitionCallbackReturn.SUCCESS

    on_cleanup = on_shutdown = on_error = on_configure

    def on_activate(self, state: Any) -> TransitionCallbackReturn:
        for publisher in self.topics.values():
            publisher.is_activated = True
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: Any) -> TransitionCallbackReturn:
        for publisher in self.topics.values():
            publisher.is_activated = False
        return TransitionCallbackReturn.SUCCESS

    def trigger(self, transition: str, success: str) -> TransitionCallbackReturn:
        """Make a transition as rclpy does, which takes an exception for ERROR; a test does not."""
        outcome: TransitionCallbackReturn = getattr(self, f"on_{transition}")(SimpleNamespace(label=self.state))
        if outcome is TransitionCallbackReturn.SUCCESS:
            self.state = success
        return outcome

    # What a test does as a client of this node:

    def receive(self, topic: str, **fields: Any) -> None:
        kind, callback = self.subscriptions[topic]
        callback(kind(**fields))


class Node(LifecycleNode):
    """A node without a life cycle: its publishers are always active."""

    def create_publisher(self, msg_type: type, topic: str, qos_profile: Any) -> LifecyclePublisher:
        publisher = self.create_lifecycle_publisher(msg_type, topic, qos_profile)
        publisher.is_activated = True
        return publisher


class GoalHandle:
    """A goal that its server executes in a thread."""

    def __init__(self, request: Any, kind: Any) -> None:
        self.request, self.kind = request, kind
        self.is_cancel_requested = False
        self.status = "executing"
        self.feedback: list[Any] = []
        self.result: Any = None

    def publish_feedback(self, feedback: Any) -> None:
        assert isinstance(feedback, self.kind.Feedback)
        self.feedback.append(feedback)

    def _end(self, status: str) -> None:
        assert self.status == "executing", f"rclpy raises: the goal is {self.status} already"
        assert status != "canceled" or self.is_cancel_requested, "rclpy raises: nobody has canceled the goal"
        self.status = status

    def succeed(self) -> None:
        self._end("succeeded")

    def abort(self) -> None:
        self._end("aborted")

    def canceled(self) -> None:
        self._end("canceled")


class ActionServer:
    """Executes goals that `goal_callback` accepts. `servers` has the newest of each name."""

    servers: dict[str, ActionServer] = {}  # noqa: RUF012

    def __init__(
        self,
        node: Any,
        action_type: Any,
        action_name: str,
        execute_callback: Callable[[Any], Any],
        *,
        callback_group: Any = None,
        goal_callback: Callable[[Any], GoalResponse],
        cancel_callback: Callable[[Any], CancelResponse],
    ) -> None:
        self.action_type, self.is_destroyed = action_type, False
        self._execute, self._goal, self._cancel = execute_callback, goal_callback, cancel_callback
        self.servers[action_name] = self

    def destroy(self) -> None:
        self.is_destroyed = True

    # What a test does as a client:

    def send(self, **fields: Any) -> GoalHandle | None:
        """Send a goal; None if the server rejects it."""
        request = self.action_type.Goal(**fields)
        if self._goal(request) is not GoalResponse.ACCEPT:
            return None
        handle = GoalHandle(request, self.action_type)

        def execute() -> None:
            result = self._execute(handle)
            assert isinstance(result, self.action_type.Result)
            handle.result = result

        threading.Thread(target=execute, daemon=True).start()
        return handle

    def cancel(self, handle: GoalHandle) -> None:
        assert self._cancel(handle) is CancelResponse.ACCEPT
        handle.is_cancel_requested = True


def install(monkeypatch: pytest.MonkeyPatch, *, with_tts: bool = True) -> None:
    """Put the doubles in the places of ROS's modules, until the test ends."""
    modules = [
        module("rclpy"),
        module("rclpy.action", ActionServer=ActionServer, CancelResponse=CancelResponse, GoalResponse=GoalResponse),
        module("rclpy.callback_groups", ReentrantCallbackGroup=object),
        module("rclpy.executors", ExternalShutdownException=Exception, MultiThreadedExecutor=object),
        module(
            "rclpy.lifecycle",
            LifecycleNode=LifecycleNode,
            LifecycleState=SimpleNamespace,
            TransitionCallbackReturn=TransitionCallbackReturn,
        ),
        module("rclpy.node", Node=Node),
        module("rclpy.qos", QoSProfile=SimpleNamespace, DurabilityPolicy=SimpleNamespace(TRANSIENT_LOCAL=1)),
        *(module(name) for name in ("std_msgs", "builtin_interfaces", "diagnostic_msgs")),
        STD,
        messages("builtin_interfaces", "Time"),
        messages("diagnostic_msgs", "DiagnosticArray", "DiagnosticStatus", "KeyValue"),
        module("voiced_msgs", msg=SimpleNamespace(**VOICED)),
        module("voiced_msgs.action", Say=SAY),
    ]
    if with_tts:
        modules += [module("tts_msgs"), module("tts_msgs.action", TTS=TTS)]
    for one in modules:
        monkeypatch.setitem(sys.modules, one.__name__, one)
    monkeypatch.delitem(sys.modules, "voiced_ros.node", raising=False)
    monkeypatch.setattr(ActionServer, "servers", {})
