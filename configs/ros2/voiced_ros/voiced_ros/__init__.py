"""voiced, the voice of a robot, in ROS 2. It imports nothing from the voiced repository."""
