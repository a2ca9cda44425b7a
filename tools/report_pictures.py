"""Takes the pictures of docs/report.md anew, from a folder of results.

.venv/bin/python tools/report_pictures.py DIR
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from report.browser import Page, browser  # noqa: E402

from realistic_tta.cli.main import main  # noqa: E402


def save(page: Page, name: str, first: str | None = None, last: str | None = None) -> None:
    """The window, or the page from one element to another."""
    image = Image.open(io.BytesIO(page.driver.get_screenshot_as_png())).convert("RGB")
    if first and last:
        box = "return document.getElementById(arguments[0]).getBoundingClientRect()"
        top, bottom = page.run(box, first)["top"], page.run(box, last)["bottom"]
        image = image.crop((0, int(top) - 20, image.width, int(bottom) + 20))
    image.save(ROOT / "docs/images" / name, optimize=True)
    print(ROOT / "docs/images" / name)


def take(results: Path) -> None:
    with tempfile.TemporaryDirectory() as name, browser(Path(name)) as page:
        report = Path(name) / "report.html"
        if main(["report", "--dir", str(results), "--out", str(report)]):
            return
        page.open(report, 1200, 1000)
        page.wait("return document.getElementById('plot-sizes').data")
        save(page, "report-top.png")
        page.open(report, 1200, 1000, dark=True)
        page.show_all()
        save(page, "report-dark.png", "h-course", "corruptions")
        page.open(report, 360, 780)
        page.wait("return document.getElementById('plot-sizes').data")
        save(page, "report-phone.png")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
