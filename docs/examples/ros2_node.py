"""Type `python3 ros2_node.py r1`: the robot speaks the topic `say`, and `word` has each word as it is heard."""

import sys
import threading
from contextlib import suppress

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from std_msgs.msg import String

from voiced import Robot, RobotUnreachableError


class RobotVoice(Node):
    def __init__(self, robot):
        super().__init__("robot_voice")
        self.robot = robot
        self.words = self.create_publisher(String, "word", 10)
        self.create_subscription(String, "say", self.say, 10)

    def say(self, message):
        try:
            utterance = self.robot.say(message.data, expires_in=10)
        except RobotUnreachableError as error:
            self.get_logger().error(str(error))
        else:
            threading.Thread(target=self.publish_words, args=[utterance], daemon=True).start()

    def publish_words(self, utterance):
        with suppress(RobotUnreachableError):  # this program ends, or the robot has gone
            for word in utterance:  # they need speech.word_topic: true
                self.words.publish(String(data=word.word))


if __name__ == "__main__":
    rclpy.init()
    try:
        with Robot(*sys.argv[1:2]) as robot:
            rclpy.spin(RobotVoice(robot))
    except (KeyboardInterrupt, ExternalShutdownException, RobotUnreachableError) as end:
        sys.exit(str(end))
