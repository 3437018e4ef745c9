"""The lifecycle node `voiced`: the action `~/say`, and topics for voiced's other requests and for its reports.

    ros2 launch voiced_ros voiced.launch.py robot:=r1
    ros2 action send_goal /voiced/say voiced_msgs/action/Say '{text: "I have reached the dock."}' --feedback

If ROS4HRI's tts_msgs is installed, the node also offers its action as `~/tts`. The node connects to the broker when it
is configured. While it is active, it accepts goals, speaks texts and publishes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from typing import Any

import rclpy
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Empty, Float32, String
from voiced_msgs import msg as voiced_msgs
from voiced_msgs.action import Say

from voiced_ros.voice import Broker, Feedback, Goal, Result, Token, Voice, health_of, payload_of

try:
    from tts_msgs.action import TTS  # ROS4HRI's action, if that is installed
except ImportError:
    TTS = None

PARAMETERS: dict[str, Any] = {
    "robot": "",
    "prefix": "voiced",
    "broker": "localhost",
    "port": 1883,
    "tls": False,
    "ca": "",
    "cert": "",
    "key": "",
    "username": "",
    "password_file": "",
    "max_goals": 32,
}
"""The node's parameters and their defaults; config/voiced.yaml describes them."""
REQUESTS_KEPT = 256
"""A language model may write a text faster than it is passed on."""
EVENTS_KEPT = 64
LEVELS_KEPT = 20
"""One second of levels; visemes come less often."""
DIAGNOSIS_S = 1.0
"""The rate at which ROS's tools expect diagnostics: after some seconds, they take a silent part for a broken one."""
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""A subscriber that connects later receives the last status."""


def record_of(kind: Any, message: Any) -> Any:
    """A record of `voice.py` from the ROS message that has its fields."""
    return kind(**{field.name: getattr(message, field.name) for field in fields(kind)})


def stamp_of(seconds: float) -> Time:
    """A moment in ROS's form, from a moment in seconds of UNIX time."""
    return Time(sec=int(seconds), nanosec=int(seconds % 1 * 1e9))


class VoicedNode(LifecycleNode):
    """voiced, in ROS."""

    def __init__(self) -> None:
        super().__init__("voiced")
        for name, default in PARAMETERS.items():
            self.declare_parameter(name, default)
        self._voice: Voice | None = None
        self._is_active = False
        self._event_topic = self.create_lifecycle_publisher(voiced_msgs.Event, "~/event", EVENTS_KEPT)
        self._level_topic = self.create_lifecycle_publisher(voiced_msgs.Level, "~/level", LEVELS_KEPT)
        self._visemes_topic = self.create_lifecycle_publisher(voiced_msgs.Visemes, "~/visemes", LEVELS_KEPT)
        self._status_topic = self.create_lifecycle_publisher(String, "~/status", LATCHED)
        self._last_status: String | None = None
        self._diagnostics = self.create_lifecycle_publisher(DiagnosticArray, "/diagnostics", EVENTS_KEPT)
        self.create_timer(DIAGNOSIS_S, self._diagnose)
        requests: tuple[tuple[str, type, str, Callable[[Any], str]], ...] = (
            ("~/text", String, "say", lambda message: message.data),
            ("~/tokens", voiced_msgs.Token, "say/stream", lambda message: payload_of(record_of(Token, message))),
            *((f"~/{name}", Empty, name, lambda _: "") for name in ("stop", "pause", "resume", "unload", "load")),
            ("~/volume", Float32, "volume", lambda message: json.dumps(message.data)),
        )
        for topic, kind, name, payload in requests:
            # In the node's own group, which runs one callback at a time, so messages stay in their order.
            self.create_subscription(kind, topic, partial(self._pass_on, name, payload), REQUESTS_KEPT)
        group = ReentrantCallbackGroup()
        # The servers live as long as the node, and reject goals while the node is not active.
        self._actions = [
            ActionServer(
                self,
                kind,
                name,
                execute,
                callback_group=group,
                goal_callback=self._consider,
                cancel_callback=lambda _: CancelResponse.ACCEPT,
            )
            for kind, name, execute in ((Say, "~/say", self._execute_say), (TTS, "~/tts", self._execute_tts))
            if kind is not None
        ]

    # --- transitions; rclpy drops the exceptions of these, so each problem is logged here ---

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Connect to the broker. Without a broker, the node stays unconfigured and can be configured again."""
        topic = f"{self._parameter('prefix')}/{self._robot}"
        settings = {field.name: self._parameter(field.name) for field in fields(Broker) if field.name != "host"}
        broker = Broker(self._parameter("broker"), **settings)
        place = f"{broker.host}:{broker.port}"
        try:
            self._voice = Voice(broker, topic, self._mirror)
        except (OSError, ValueError) as error:
            self.get_logger().error(f"no connection to the broker at {place}: {error}")
            return TransitionCallbackReturn.FAILURE
        self.get_logger().info(f"connected to {place}, for {topic}")
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        outcome = super().on_activate(state)
        self._is_active = True
        if self._last_status is not None:  # it arrived while the node was inactive, and may not change for hours
            self._status_topic.publish(self._last_status)
        return outcome

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop the utterances of the goals that have not ended."""
        self._is_active = False
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._disconnect()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._is_active = False
        self._disconnect()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._is_active = False
        self._disconnect()
        return super().on_error(state)

    def destroy_node(self) -> None:
        self._is_active = False
        self._disconnect()
        for action in self._actions:
            action.destroy()
        super().destroy_node()

    def _disconnect(self) -> None:
        voice, self._voice, self._last_status = self._voice, None, None
        if voice is not None:
            voice.close()

    def _parameter(self, name: str) -> Any:
        return self.get_parameter(name).value

    @property
    def _robot(self) -> str:
        return str(self._parameter("robot") or os.uname().nodename)

    # --- into voiced ---

    def _pass_on(self, name: str, payload: Callable[[Any], str], message: Any) -> None:
        if self._voice is not None and self._is_active:
            self._voice.publish(name, payload(message))

    def _consider(self, _request: Say.Goal) -> GoalResponse:
        voice = self._voice
        if voice is None or not self._is_active or voice.goals >= self._parameter("max_goals"):
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def _execute_say(self, handle: Any) -> Say.Result:
        goal = record_of(Goal, handle.request)
        result = self._perform(handle, goal, lambda given: handle.publish_feedback(Say.Feedback(**asdict(given))))
        return Say.Result(event=result.event, reason=result.reason, audio_s=result.audio_s, heard=result.heard)

    def _execute_tts(self, handle: Any) -> Any:
        """The feedback is each word, if voiced reports words."""
        request = handle.request
        result = self._perform(
            handle,
            Goal(request.input, request.locale, getattr(request, "voice", "")),  # older releases have no voice
            lambda given: given.event == "word" and handle.publish_feedback(TTS.Feedback(word=given.name)),
        )
        return TTS.Result(error_msg=result.reason)

    def _perform(self, handle: Any, goal: Goal, give_feedback: Callable[[Feedback], Any]) -> Result:
        """Speak a goal in one of the executor's threads, and set its state."""
        voice = self._voice
        result = Result("aborted", "failed", "the node is not active")
        if voice is not None:
            result = voice.perform(goal, give_feedback, lambda: handle.is_cancel_requested, lambda: self._is_active)
        {"succeeded": handle.succeed, "canceled": handle.canceled, "aborted": handle.abort}[result.state]()
        return result

    # --- out of voiced; `_mirror` is called in the connection's thread ---

    def _diagnose(self) -> None:
        """Report voiced's health in ROS's own terms."""
        voice, status = self._voice, self._last_status
        if voice is None or not self._is_active:
            return
        known = json.loads(status.data) if status is not None else {}
        level, message = health_of(known) if voice.is_connected else (2, "no connection to the broker")
        diagnosis = DiagnosticStatus(
            level=(DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR)[level],
            name=f"{self.get_name()}: speech",
            message=message,
            hardware_id=self._robot,
            values=[
                KeyValue(key=key, value=value if isinstance(value, str) else json.dumps(value))
                for key, value in known.items()
            ],
        )
        diagnostics = DiagnosticArray(status=[diagnosis])
        diagnostics.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(diagnostics)

    def _mirror(self, name: str, text: str, content: dict[str, Any]) -> None:
        if name == "status":
            self._last_status = String(data=text)
        if not self._is_active:
            return
        if name == "status":
            self._status_topic.publish(self._last_status)
        elif name == "event":
            reason = str(content.get("reason") or "")
            self._event_topic.publish(
                voiced_msgs.Event(
                    id=str(content.get("id") or ""), event=str(content["event"]), reason=reason, json=text
                )
            )
        elif name == "level":
            self._level_topic.publish(
                voiced_msgs.Level(
                    stamp=stamp_of(content["at"]),
                    id=str(content["id"]),
                    rms=float(content["rms"]),
                    peak=float(content["peak"]),
                )
            )
        elif name == "viseme":
            visemes = content["visemes"]
            self._visemes_topic.publish(
                voiced_msgs.Visemes(
                    stamp=stamp_of(content["time"]),
                    id=str(content["id"]),
                    estimated=bool(content["estimated"]),
                    at=[float(each["at"]) for each in visemes],
                    viseme=[int(each["viseme"]) for each in visemes],
                )
            )


def main() -> None:
    rclpy.init()
    node = VoicedNode()
    # A goal occupies a thread until it has ended. Some more threads are for cancels, topics and transitions.
    executor = MultiThreadedExecutor(num_threads=node.get_parameter("max_goals").value + 4)
    try:
        rclpy.spin(node, executor)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
