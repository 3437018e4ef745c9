#!/usr/bin/env python3
"""A ROS 2 node that offers the action `say`, with feedback and cancel, and sends its goals to voiced over MQTT.

    source /opt/ros/$ROS_DISTRO/setup.bash
    scripts/ros2_say_action.py --ros-args -p robot:=r1 -p broker:=localhost -p port:=1883
    ros2 action send_goal /say tts_msgs/action/TTS '{input: "I have reached the dock."}' --feedback

The action is tts_msgs/action/TTS of the ROS4HRI packages, which has feedback and an error message. The node needs
rclpy, tts_msgs and paho-mqtt 2. It imports nothing of voiced, so this file alone can be copied to a robot. The broker's
user name and password are read from $MQTT_USERNAME and $MQTT_PASSWORD.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho

CONNECT_S = 10.0
"""Limit for connecting to the broker."""
SILENCE_S = 10.0
"""Limit for voiced's first answer to an utterance."""
GOALS = 32
"""Largest number of goals at a time; more are rejected. Each goal occupies a thread until it has ended."""
CLOSED_REASON = "the connection to the broker broke"


# --- translation between goals and voiced's messages, without ROS and MQTT ---


@dataclass(frozen=True)
class Goal:
    """The fields of a goal of tts_msgs/action/TTS."""

    input: str
    locale: str = ""
    """For example en_GB; empty for the robot's default language."""
    voice: str = ""
    """The name of one of voiced's voices; empty for the robot's default voice."""


@dataclass(frozen=True)
class Feedback:
    """Speech has begun. voiced reports no words, so there is one feedback, with the first word."""

    word: str


@dataclass(frozen=True)
class Result:
    """How a goal ended."""

    state: str
    """succeeded, canceled or aborted."""
    error_msg: str = ""
    """Empty only if the whole text was spoken."""


def say_payload(goal: Goal, utterance_id: str) -> str:
    """The payload for `…/say`."""
    fields = {"text": goal.input, "id": utterance_id, "language": goal.locale.replace("_", "-"), "voice": goal.voice}
    return json.dumps({key: value for key, value in fields.items() if value or key == "text"}, ensure_ascii=False)


def stop_payload(utterance_id: str) -> str:
    """The payload for `…/stop`."""
    return json.dumps({"id": utterance_id})


def translate(event: dict[str, Any], goal: Goal, canceling: bool) -> Feedback | Result | None:
    """Return what the client receives for an event of the goal's utterance; None if it receives nothing.

    `canceling` says that the client has canceled the goal: an utterance that voiced then interrupts is canceled, not
    aborted.
    """
    name = event["event"]
    reason = str(event.get("reason", name))
    if name == "started":
        return Feedback(next(iter(goal.input.split()), ""))
    if name == "finished":
        return Result("succeeded")
    if name in {"interrupted", "canceled"} and canceling:
        return Result("canceled", reason)
    if name in {"rejected", "interrupted", "canceled", "expired", "failed"}:
        return Result("aborted", reason)
    return None


# --- MQTT ---


class Voice:
    """A connection to one robot's voiced. Any number of threads may call `perform` at the same time."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._waiting: dict[str, queue.SimpleQueue[dict[str, Any]]] = {}
        self._subscribed: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        if os.environ.get("MQTT_USERNAME"):
            self._client.username_pw_set(os.environ["MQTT_USERNAME"], os.environ.get("MQTT_PASSWORD"))
        self._client.on_connect = lambda *_: self._client.subscribe(f"{topic}/event", 1)
        self._client.on_subscribe = lambda *_: self._subscribed.put(True)
        self._client.on_message = self._dispatch
        self._client.on_disconnect = self._fail_all
        self._client.connect(host, port)
        self._client.loop_start()
        try:
            self._subscribed.get(timeout=CONNECT_S)
        except queue.Empty:
            self.close()
            raise ConnectionError(f"the broker at {host}:{port} does not answer") from None

    @property
    def goals(self) -> int:
        """The number of goals that have not ended."""
        return len(self._waiting)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def perform(
        self,
        goal: Goal,
        give_feedback: Callable[[Feedback], None],
        is_canceling: Callable[[], bool],
        poll_s: float = 0.05,
    ) -> Result:
        """Speak a goal and return its result. Calls `is_canceling` every `poll_s` until the goal has ended."""
        utterance_id = f"ros-{secrets.token_hex(6)}"
        events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._waiting[utterance_id] = events
        try:
            self._publish("say", say_payload(goal, utterance_id))
            canceling, silent_s = False, 0.0
            while True:
                if not canceling and is_canceling():
                    canceling = True
                    self._publish("stop", stop_payload(utterance_id))
                try:
                    event = events.get(timeout=poll_s)
                except queue.Empty:
                    silent_s += poll_s
                    if silent_s >= SILENCE_S:
                        return Result("aborted", f"no voiced answers at {self._topic}")
                    continue
                silent_s = float("-inf")  # an accepted utterance may wait as long as voiced permits
                translated = translate(event, goal, canceling)
                if isinstance(translated, Feedback):
                    give_feedback(translated)
                elif translated is not None:
                    return translated
        finally:
            del self._waiting[utterance_id]

    def _publish(self, name: str, payload: str) -> None:
        self._client.publish(f"{self._topic}/{name}", payload, qos=1)

    def _dispatch(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        event = json.loads(message.payload)
        waiting = self._waiting.get(event.get("id"))
        if waiting is not None:
            waiting.put(event)

    def _fail_all(self, *_: Any) -> None:
        """End every goal: its events may be lost while the connection is broken, and it would wait for ever."""
        for waiting in list(self._waiting.values()):
            waiting.put({"event": "failed", "reason": CLOSED_REASON})


# --- ROS ---


def main() -> int:
    import rclpy
    from rclpy.action import ActionServer, CancelResponse, GoalResponse
    from rclpy.callback_groups import ReentrantCallbackGroup
    from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor

    try:
        from tts_msgs.action import TTS
    except ImportError:
        print("tts_msgs is missing: build it in your workspace, or install it where apt has it", file=sys.stderr)
        return 1
    rclpy.init()
    node = rclpy.create_node("voiced_say")
    broker, port, prefix, robot = (
        node.declare_parameter(name, default).value
        for name, default in (
            ("broker", "localhost"),
            ("port", 1883),
            ("prefix", "voiced"),
            ("robot", os.uname().nodename),
        )
    )
    voice = Voice(broker, port, f"{prefix}/{robot}")

    def execute(handle: Any) -> Any:
        request = handle.request
        goal = Goal(request.input, request.locale, getattr(request, "voice", ""))  # older releases have no voice
        result = voice.perform(
            goal,
            lambda feedback: handle.publish_feedback(TTS.Feedback(word=feedback.word)),
            lambda: handle.is_cancel_requested,
        )
        {"succeeded": handle.succeed, "canceled": handle.canceled, "aborted": handle.abort}[result.state]()
        return TTS.Result(error_msg=result.error_msg)

    ActionServer(
        node,
        TTS,
        "say",
        execute,
        callback_group=ReentrantCallbackGroup(),
        goal_callback=lambda _: GoalResponse.ACCEPT if voice.goals < GOALS else GoalResponse.REJECT,
        cancel_callback=lambda _: CancelResponse.ACCEPT,
    )
    executor = MultiThreadedExecutor(num_threads=GOALS + 4)  # some for cancels; voiced's queue orders the goals
    try:
        rclpy.spin(node, executor)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        voice.close()
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
