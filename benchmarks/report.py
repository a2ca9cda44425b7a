"""What a large report takes: 2,000 made-up results, built, weighed and opened in Chromium.

.venv/bin/python benchmarks/report.py
Expected: built in under 10 s, under 6 MB, opens in under 2 s, a click answered in under 0.2 s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

# instead of this folder, where `report` would be this file
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from report.browser import Page, browser, why_not  # noqa: E402
from report.made_up import made_up, write_trace  # noqa: E402

from realistic_tta.benchmark.results import Results  # noqa: E402
from realistic_tta.cli.main import main  # noqa: E402

SCENARIOS = ("continual", "mixed", "gradual", "episodic", "correlated")
SEEN = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
OPEN = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
CLICK = """
const start = performance.now();
document.querySelector("input[value=tent]").click();
return performance.now() - start;
"""


def measure() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Results(folder)
        records = made_up(seeds=7, scenarios=SCENARIOS)[:2000]
        for record in records:
            store.write(record)
        for record in [each for each in records if each.method == "rectified_tema"][:10]:
            write_trace(folder, record.key)
        out, start, work = folder / "report.html", time.perf_counter(), time.process_time()
        main(["report", "--dir", str(folder), "--out", str(out)])
        print(
            f"{len(records)} results: built in {time.perf_counter() - start:.1f} s "
            f"({time.process_time() - work:.1f} s of work)"
        )
        print(f"weighs {out.stat().st_size / 1e6:.2f} MB")
        reason = why_not()
        if reason:
            print(f"not opened: {reason}")
            return
        with browser(folder) as page:
            opened(page, out)


def opened(page: Page, out: Path) -> None:
    """The first opening of a fresh browser apart: it starts the browser's own processes, too.

    Work is what the page's own thread computed until then: other programs do not make it longer.
    """
    times, seen, work, clicks = [], [], [], []
    page.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    for _ in range(6):
        page.open(out)
        work.append(_work(page))
        seen.append(page.run(SEEN) / 1000)
        times.append(page.run(OPEN) / 1000)
        page.wait("return document.getElementById('plot-sizes').dataset")
        clicks += [page.run(CLICK) for _ in range(4)]
    print(f"opens in {median(times[1:]):.2f} s; the first time {times[0]:.2f} s")
    print(f"headline seen after {median(seen[1:]):.2f} s; the first time {seen[0]:.2f} s")
    print(f"work of the page {median(work[1:]):.2f} s; the first time {work[0]:.2f} s")
    print(f"a click is answered in {median(clicks) / 1000:.2f} s")


def _work(page: Page) -> float:
    """Seconds since the page was asked for."""
    metrics = page.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


if __name__ == "__main__":
    measure()
