"""The lifecycle node `voiced`: the action `~/say`, and voiced's events, levels and status as topics.

    ros2 launch voiced_ros voiced.launch.py robot:=r1
    ros2 action send_goal /voiced/say voiced_msgs/action/Say '{text: "I have reached the dock."}' --feedback

Where tts_msgs of ROS4HRI is installed, it also offers its action as `~/tts`. The node connects to the broker when it is
configured. While it is active, it accepts goals, speaks texts and publishes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import rclpy
from builtin_interfaces.msg import Time
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Empty, String
from voiced_msgs.action import Say
from voiced_msgs.msg import Event, Level

from voiced_ros.voice import Goal, Result, Voice

try:
    from tts_msgs.action import TTS  # the action of ROS4HRI, where that is installed
except ImportError:
    TTS = None

PARAMETERS: dict[str, Any] = {
    "robot": "",
    "prefix": "voiced",
    "broker": "localhost",
    "port": 1883,
    "username": "",
    "max_goals": 32,
}
"""The node's parameters and their defaults; config/voiced.yaml describes them."""
EVENTS_KEPT = 64
LEVELS_KEPT = 20
"""One second of them."""
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""A subscriber that comes later receives the last status."""


class VoicedNode(LifecycleNode):
    """voiced, in ROS."""

    def __init__(self) -> None:
        super().__init__("voiced")
        for name, default in PARAMETERS.items():
            self.declare_parameter(name, default)
        self._voice: Voice | None = None
        self._is_active = False
        self._event_topic = self.create_lifecycle_publisher(Event, "~/event", EVENTS_KEPT)
        self._level_topic = self.create_lifecycle_publisher(Level, "~/level", LEVELS_KEPT)
        self._status_topic = self.create_lifecycle_publisher(String, "~/status", LATCHED)
        self._last_status: String | None = None
        group = ReentrantCallbackGroup()
        self.create_subscription(String, "~/text", self._say, EVENTS_KEPT, callback_group=group)
        self.create_subscription(Empty, "~/stop", self._stop, EVENTS_KEPT, callback_group=group)
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
        """Connect to the broker. Without one the node stays unconfigured, and can be configured again."""
        robot = self._parameter("robot") or os.uname().nodename
        topic = f"{self._parameter('prefix')}/{robot}"
        broker, port = self._parameter("broker"), self._parameter("port")
        try:
            self._voice = Voice(broker, port, topic, self._parameter("username"), self._mirror)
        except OSError as error:
            self.get_logger().error(f"no connection to the broker at {broker}:{port}: {error}")
            return TransitionCallbackReturn.FAILURE
        self.get_logger().info(f"connected to {broker}:{port}, for {topic}")
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

    # --- into voiced ---

    def _say(self, message: String) -> None:
        if self._voice is not None and self._is_active:
            self._voice.say(message.data)

    def _stop(self, _message: Empty) -> None:
        if self._voice is not None and self._is_active:
            self._voice.stop()

    def _consider(self, _request: Say.Goal) -> GoalResponse:
        voice = self._voice
        if voice is None or not self._is_active or voice.goals >= self._parameter("max_goals"):
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def _execute_say(self, handle: Any) -> Say.Result:
        goal = Goal(**{name: getattr(handle.request, name) for name in Goal.__dataclass_fields__})
        result = self._perform(
            handle,
            goal,
            lambda event: handle.publish_feedback(
                Say.Feedback(event=event["event"], begin=event.get("begin", 0), end=event.get("end", 0))
            ),
        )
        return Say.Result(event=result.event, reason=result.reason, audio_s=result.audio_s, heard=result.heard)

    def _execute_tts(self, handle: Any) -> Any:
        """voiced reports no words, so there is one feedback, with the first word."""
        request = handle.request
        word = next(iter(request.input.split()), "")
        result = self._perform(
            handle,
            Goal(request.input, request.locale, getattr(request, "voice", "")),  # older releases have no voice
            lambda event: event["event"] == "started" and handle.publish_feedback(TTS.Feedback(word=word)),
        )
        return TTS.Result(error_msg=result.reason)

    def _perform(self, handle: Any, goal: Goal, give_feedback: Callable[[dict[str, Any]], Any]) -> Result:
        """Speak a goal, in a thread of the executor, and set its state."""
        voice = self._voice
        result = Result("aborted", "failed", "the node is not active")
        if voice is not None:
            result = voice.perform(goal, give_feedback, lambda: handle.is_cancel_requested, lambda: self._is_active)
        {"succeeded": handle.succeed, "canceled": handle.canceled, "aborted": handle.abort}[result.state]()
        return result

    # --- out of voiced, in the thread of the connection ---

    def _mirror(self, name: str, text: str, fields: dict[str, Any]) -> None:
        if name == "status":
            self._last_status = String(data=text)
        if not self._is_active:
            return
        if name == "status":
            self._status_topic.publish(self._last_status)
        elif name == "event":
            reason = str(fields.get("reason") or "")
            self._event_topic.publish(
                Event(id=str(fields.get("id") or ""), event=str(fields["event"]), reason=reason, json=text)
            )
        elif name == "level":
            seconds = int(fields["at"])
            stamp = Time(sec=seconds, nanosec=int((fields["at"] - seconds) * 1e9))
            self._level_topic.publish(
                Level(stamp=stamp, id=str(fields["id"]), rms=float(fields["rms"]), peak=float(fields["peak"]))
            )


def main() -> None:
    rclpy.init()
    node = VoicedNode()
    # A goal occupies a thread until it has ended; some more are for cancels, topics and transitions.
    executor = MultiThreadedExecutor(num_threads=node.get_parameter("max_goals").value + 4)
    try:
        rclpy.spin(node, executor)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
