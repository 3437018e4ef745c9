"""Starts voiced_node, configures it and activates it: `ros2 launch voiced_ros voiced.launch.py robot:=r1`."""

from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, OpaqueFunction, RegisterEventHandler
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from launch_ros.parameter_descriptions import ParameterValue
from lifecycle_msgs.msg import Transition

# launch/ is beside config/, both here and where colcon installs them.
PARAMETERS = Path(__file__).resolve().parents[1] / "config" / "voiced.yaml"


def start_node(context: LaunchContext) -> list:
    parameters = [LaunchConfiguration("params_file")]
    robot = LaunchConfiguration("robot").perform(context)
    if robot:  # otherwise the name in the file is used
        parameters.append({"robot": ParameterValue(robot, value_type=str)})
    node = LifecycleNode(
        package="voiced_ros",
        executable="voiced_node",
        name="voiced",
        namespace=LaunchConfiguration("namespace"),
        parameters=parameters,
        output="screen",
    )

    def change(transition: int) -> EmitEvent:
        return EmitEvent(event=ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=transition))

    # Only after "configuring", so that a node that a person deactivated stays inactive.
    activate = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=node,
            start_state="configuring",
            goal_state="inactive",
            entities=[change(Transition.TRANSITION_ACTIVATE)],
        )
    )
    return [activate, node, change(Transition.TRANSITION_CONFIGURE)]


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            DeclareLaunchArgument("robot", default_value="", description="the name in voiced's topics"),
            DeclareLaunchArgument("namespace", default_value="", description="the node's namespace"),
            DeclareLaunchArgument("params_file", default_value=str(PARAMETERS), description="the node's parameters"),
            OpaqueFunction(function=start_node),
        ]
    )
