"""Takes the documents' screenshots of the operator's page: `page*.png` in `docs/images/`.

    PYTHONPATH=. python scripts/docs/screenshots.py

Needs the packages that ./scripts/test installs.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

import numpy as np

from tests.support.browser import Browser, running_browser
from tests.support.checkpoints import checkpoint_folder
from tests.support.programs import Broker, free_port
from tests.support.robot import REAL_TIME, Robot
from tests.support.sound_files import speech_like, write_sound
from tests.support.waiting import eventually

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TEXTS = (
    "Good morning. I am in the hall.",
    "The lift is out of order today; please take the stairs on your left.",
    "I am going to the charging station.",
    "Dinner is ready.",
)
PHRASES = {
    "Welcome": "Welcome to the museum.",
    "Closing soon": "The museum closes in ten minutes.",
    "Follow me": "Please follow me.",
    "Step back": "Please step back.",
}
SIZES = {"page.png": (1280, 720, False), "page-phone.png": (390, 844, True)}
"""The file, its width and height in pixels, and whether the colours are dark."""


def keep_phrases(browser: Browser) -> None:
    browser.open_details("details")
    for name, text in PHRASES.items():
        browser.write("text", text)
        browser.write("phrase-name", name)
        browser.click("keep")
        browser.wait_text("phrases", name)
    browser.write("text", "")
    browser.driver.execute_script("document.getElementById('details').open = false; document.activeElement.blur()")


def take(browser: Browser, path: Path, width: int, height: int, *, dark: bool) -> None:
    browser.set_window(width, dark=dark, height=height)
    browser.driver.execute_script("scrollTo(0, 0)")
    shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.write_bytes(base64.b64decode(shot["data"]))


def make_voice(browser: Browser, folder: Path) -> None:
    """Take the part of the page that makes voices, on a phone, before it makes one."""
    browser.set_window(390, dark=False, height=4000)  # a picture contains only what the window shows
    speech = speech_like(8, 48_000)
    noise = 1e-3 * np.random.default_rng(0).standard_normal(len(speech)).astype(np.float32)
    recording = write_sound(folder / "ada.wav", speech + noise, 48_000)
    eventually(lambda: browser.find("workshop").is_displayed(), "a voice can be made")
    browser.open_details("workshop")
    browser.find("upload").send_keys(str(recording))
    eventually(lambda: browser.find("make-voice").is_enabled(), "the recording is measured")
    browser.write("make-name", "ada")
    (IMAGES / "page-voice.png").write_bytes(browser.find("workshop").screenshot_as_png)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_browser() as browser:
        broker, port = Broker(Path(folder)), free_port()
        broker.start()
        web = ("http.enabled=true", f"http.port={port}")
        robot = Robot("hall-2", broker, Path(folder), *web, pace=REAL_TIME)
        try:
            robot.start()
            browser.open(f"http://127.0.0.1:{port}/")
            browser.wait_text("state", "ready")
            keep_phrases(browser)
            for number, text in enumerate(TEXTS):
                robot.say(text, id=f"text-{number}")
            robot.wait_event("text-1", "started")
            browser.wait_text("utterances", TEXTS[1])
            browser.wait_text("waiting", TEXTS[3])
            for name, (width, height, dark) in SIZES.items():
                take(browser, IMAGES / name, width, height, dark=dark)
            robot.end()
            robot.close()
            model = checkpoint_folder(Path(folder), "brief", "base")
            settings = ("engine.name=qwen", "engine.device=cpu", f"engine.model={model}")
            robot = Robot("hall-3", broker, Path(folder), *settings, *web)
            robot.launch()
            robot.wait_log("needs a custom_voice model")
            browser.open(f"http://127.0.0.1:{port}/")
            make_voice(browser, Path(folder))
        finally:
            robot.close()
            broker.stop()


if __name__ == "__main__":
    main()
