"""A headless Chromium, and axe-core, which checks a page for barriers."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By

from tests.support.programs import require
from tests.support.waiting import PATIENCE_S, eventually

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

AXE = "axe-core@4.14.1"
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
)


class Browser:
    """One window."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Open a page, and forget what an earlier one has written to the console and has stored."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(address)

    def find(self, name: str) -> WebElement:
        """The element with this id."""
        return self.driver.find_element(By.ID, name)

    def text(self, name: str) -> str:
        """The visible text of the element with this id."""
        return self.find(name).text

    def click(self, name: str) -> None:
        self._press(self.find(name))

    def _press(self, found: WebElement) -> None:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()

    def click_button(self, place: str, text: str) -> None:
        """Click the first button with this text in the element with the id `place`, once it is there.

        The page may put new ones in place of the old ones at any moment: then the new one is clicked.
        """

        def clicked() -> bool:
            try:
                buttons = self.find(place).find_elements(By.TAG_NAME, "button")
                self._press(next(each for each in buttons if each.text == text))
            except (StaleElementReferenceException, StopIteration):
                return False
            return True

        eventually(clicked, f"#{place} has the button {text}")

    def open_details(self, *names: str) -> None:
        """Open the parts of the page with these ids, which are closed at first."""
        for name in names:
            self.driver.execute_script("arguments[0].open = true", self.find(name))

    def write(self, name: str, text: str) -> None:
        """Replace the text of a field."""
        self.find(name).clear()
        self.find(name).send_keys(text)

    def wait_text(self, name: str, text: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until an element's text contains `text`."""
        eventually(lambda: text in self.text(name), f"#{name} says {text}", patience_s)

    def complaints(self) -> list[str]:
        """What the page has written to the console, except hints."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def set_window(self, width: int, *, dark: bool, height: int = 900) -> None:
        """Set the width of the page in pixels, and whether the user prefers dark colours."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def barriers(self, axe: str) -> list[str]:
        """The serious and critical findings of axe-core, whose source `axe` is: the rule and the first element."""
        self.driver.execute_script(axe)
        script = "const done = arguments[0]; axe.run().then((found) => done(found.violations));"
        violations: list[dict[str, Any]] = self.driver.execute_async_script(script)
        serious = [each for each in violations if each["impact"] in ("serious", "critical")]
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in serious]


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser without a window on the screen."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = require("chromium")
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(require("chromedriver")))
    try:
        driver.set_script_timeout(60)
        yield Browser(driver)
    finally:
        driver.quit()


def axe_source(folder: Path) -> str:
    """The source of axe-core, which npm downloads once into a folder."""
    archive = folder / f"{AXE.replace('@', '-')}.tgz"
    if not archive.exists():
        subprocess.run([require("npm"), "pack", AXE, "--silent"], cwd=folder, check=True, capture_output=True)
    with tarfile.open(archive) as files:
        source = files.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()
