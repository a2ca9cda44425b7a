"""A real Chromium without a window, for the report page. It never goes online."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")


def why_not() -> str | None:
    """Why no browser can be used here; None if one can. In CI, a missing browser is an error."""
    if os.environ.get("CI") or (CHROMIUM and DRIVER):
        return None
    return "no Chromium here: Debian's packages chromium and chromium-driver bring it"


class Page:
    """The report in a window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, path: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """From disk; returns when it is drawn."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.resize(width, height)
        self.driver.get(path.resolve().as_uri())
        self.wait("return document.documentElement.dataset.ready === 'yes'")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, program: str, *arguments: Any) -> Any:
        return self.driver.execute_script(program, *arguments)

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since it was asked for last."""
        found: list[dict[str, Any]] = self.driver.get_log(kind)  # type: ignore[no-untyped-call]
        return found

    def wait(self, program: str, seconds: float = 60) -> Any:
        """Until the program returns something true."""
        return WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.run(program))

    def show_all(self) -> None:
        """A window as high as the page, so that every plot is drawn."""
        width = self.run("return innerWidth")
        self.resize(width, self.run("return document.documentElement.scrollHeight"))
        plots = "['plot-sizes', 'plot-curve', 'plot-cost']"
        self.wait(f"return {plots}.every((id) => document.getElementById(id).data)")

    def lines(self, plot: str) -> dict[str, list[list[float]]]:
        """What a plot shows: x and y by name."""
        program = "return document.getElementById(arguments[0]).data.map((t) => [t.name, t.x, t.y])"
        return {name: [x, y] for name, x, y in self.run(program, plot)}

    def rows(self, place: str) -> list[list[str]]:
        """A table's cells as they are read, head first."""
        program = (
            "return [...document.querySelectorAll(`#${arguments[0]} tr`)]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        found: list[list[str]] = self.run(program, place)
        return found

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()


@contextmanager
def browser(downloads: Path) -> Iterator[Page]:
    """Closed at the end. downloads: where files go that the page offers."""
    options = webdriver.ChromeOptions()
    assert CHROMIUM, "no Chromium; .ci/run installs it"
    options.binary_location = CHROMIUM
    for word in ("--no-sandbox", "--headless=new", "--hide-scrollbars"):
        options.add_argument(word)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Page(driver)
    finally:
        driver.quit()
