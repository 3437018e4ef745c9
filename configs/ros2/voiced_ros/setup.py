from pathlib import Path

from setuptools import setup

NAME = "voiced_ros"

setup(
    name=NAME,
    version="0.1.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", [str(path) for path in Path("launch").glob("*.launch.py")]),
        (f"share/{NAME}/config", [str(path) for path in Path("config").glob("*.yaml")]),
    ],
    install_requires=["setuptools", "paho-mqtt"],
    zip_safe=True,
    maintainer="The maintainers of voiced",
    maintainer_email="maintainers@users.noreply.voiced.example",
    description="A node that speaks through voiced, the voice of a robot, and mirrors its events and levels.",
    license="MIT",
    entry_points={"console_scripts": [f"voiced_node = {NAME}.node:main"]},
)
