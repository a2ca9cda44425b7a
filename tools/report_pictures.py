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

from realistic_tta.cli import main  # noqa: E402


def save(page: Page, name: str, first: str | None = None, height: int = 0) -> None:
    """The window, or the page from an element on."""
    image = Image.open(io.BytesIO(page.driver.get_screenshot_as_png())).convert("RGB")
    if first is not None:
        box = page.run(
            "return document.getElementById(arguments[0]).getBoundingClientRect()", first
        )
        top = int(box["top"]) - 20
        image = image.crop((0, top, image.width, top + height))
    palette = image.quantize(128)  # a quarter of the bytes, and nobody sees it
    palette.save(ROOT / "docs/images" / name, optimize=True)
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
        save(page, "report-dark.png", "h-course", 1250)
        page.open(report, 360, 780)
        page.wait("return document.getElementById('plot-sizes').data")
        save(page, "report-phone.png")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
