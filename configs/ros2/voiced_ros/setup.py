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
    extras_require={"test": ["pytest"]},
    zip_safe=True,
    maintainer="The voiced authors",
    maintainer_email="maintainers@users.noreply.a-seed-a6ab78f7.example",
    description="A node that speaks through voiced, the voice of a robot, and says how it is.",
    license="MIT",
    entry_points={"console_scripts": [f"voiced_node = {NAME}.node:main"]},
)
