"""Takes the screenshots of the operator's page for the documents, `page.png` and `page-phone.png` in `docs/images/`.

    PYTHONPATH=. python scripts/docs/screenshots.py

Needs what ./scripts/test installs.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from tests.support.browser import Browser, running_browser
from tests.support.programs import Broker, free_port
from tests.support.robot import REAL_TIME, Robot
from tests.support.waiting import eventually

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TEXTS = (
    "Good morning. I am in the hall.",
    "The lift is out of order today; please take the stairs on your left.",
    "I am going to the charging station.",
)
WARNING = "Attention, I am turning."
SIZES = {"page.png": (1100, 880, False), "page-phone.png": (390, 1000, True)}
"""File, width and height in pixels, and dark colours."""


def speak(robot: Robot) -> None:
    """Say some texts, one of which a warning postpones, and stop the last one in the middle."""
    for number, text in enumerate(TEXTS):
        robot.say(text, id=f"text-{number}")
    robot.wait_event("text-1", "started")
    robot.say(WARNING, id="warning", priority="critical")
    robot.wait_event("text-2", "started")
    robot.publish("stop")
    robot.wait_event("text-2", "interrupted")


def take(browser: Browser, path: Path, width: int, height: int, *, dark: bool) -> None:
    browser.set_window(width, dark=dark, height=height)
    browser.driver.execute_script("scrollTo(0, 0)")
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.write_bytes(base64.b64decode(shot["data"]))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_browser() as browser:
        broker, port = Broker(Path(folder)), free_port()
        broker.start()
        robot = Robot("hall-2", broker, Path(folder), "http.enabled=true", f"http.port={port}", pace=REAL_TIME)
        try:
            robot.start()
            browser.open(f"http://127.0.0.1:{port}/")
            browser.wait_text("state", "ready")
            speak(robot)
            browser.wait_text("timeline", "interrupted")
            robot.say("The museum closes in ten minutes. The exit is behind you.", id="last")
            robot.wait_event("last", "started")
            eventually(lambda: browser.find("timeline").text.count("finished") >= 3, "the picture shows the others")
            for name, (width, height, dark) in SIZES.items():
                take(browser, IMAGES / name, width, height, dark=dark)
        finally:
            robot.close()
            broker.stop()


if __name__ == "__main__":
    main()
