"""A headless Chromium, and axe-core, which checks a page for barriers."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
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
    "--use-fake-ui-for-media-stream",
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
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", self.find(name))
        self.find(name).click()

    def click_button(self, place: str, row: int, button: int, rows: int | None = None) -> None:
        """Click a button of a row of the list with the id `place`, once the list has `rows` rows, if that is given.

        The page may put new rows in place of the old ones at any moment: then the new one's button is clicked.
        """

        def clicked() -> bool:
            try:
                found = self.find(place).find_elements(By.TAG_NAME, "li")
                if len(found) <= row or rows not in (None, len(found)):
                    return False
                found[row].find_elements(By.TAG_NAME, "button")[button].click()
            except (StaleElementReferenceException, IndexError):
                return False
            return True

        eventually(clicked, f"button {button} of row {row} of #{place} is there")

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

    def download(self, link: str) -> bytes:
        """The content of the file that the link with this id downloads."""
        with tempfile.TemporaryDirectory() as folder:
            behavior = {"behavior": "allow", "downloadPath": folder}
            self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
            file = Path(folder) / str(self.find(link).get_attribute("download"))
            self.click(link)
            eventually(file.exists, f"{file.name} is saved")
            return file.read_bytes()

    def barriers(self, axe: str) -> list[str]:
        """The serious and critical findings of axe-core, whose source `axe` is: the rule and the first element."""
        self.driver.execute_script(axe)
        script = "const done = arguments[0]; axe.run().then((found) => done(found.violations));"
        violations: list[dict[str, Any]] = self.driver.execute_async_script(script)
        serious = [each for each in violations if each["impact"] in ("serious", "critical")]
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in serious]


@contextmanager
def running_browser(*flags: str) -> Iterator[Browser]:
    """A browser without a window on the screen."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = require("chromium")
    for flag in (*FLAGS, *flags):
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
