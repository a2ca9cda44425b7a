"""The examples run as they are documented, with small budgets, and reach what they show."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from realistic_tta.data.bundled_images import load_bundled_images

EXAMPLES = Path(__file__).parents[1] / "examples"
TESTED = {"contact_sheet", "digits", "imagenet", "service", "tabular", "timm_model", "video"}


def run(name: str, *words: str, folder: Path) -> str:
    """What an example prints; it must end without an error."""
    ran = subprocess.run(  # noqa: S603 - our own
        [sys.executable, str(EXAMPLES / f"{name}.py"), *words],
        cwd=folder,
        env=os.environ | {"RTTA_DATA": str(folder / "data")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def last_numbers(text: str, row: str) -> list[float]:
    """The numbers in the last row that begins so."""
    *_, line = re.findall(rf"^ *{row} .*$", text, flags=re.MULTILINE)
    return [float(number) for number in re.findall(r"\d+\.\d", line)]


def test_every_example_is_run_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


def test_digits(tmp_path: Path) -> None:
    printed = run("digits", "--epochs", "4", folder=tmp_path)
    source, adapted = (last_numbers(printed, name) for name in ("source", "realistic"))
    assert all(after < before for before, after in zip(source, adapted, strict=True))


def test_tabular(tmp_path: Path) -> None:
    printed = run("tabular", "--laboratories", "4", folder=tmp_path)
    for batch_size in ("32", "1"):
        source, adapted = last_numbers(printed, batch_size)
        assert adapted < source


def test_timm_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, where conftest.py lets torchvision be imported."""
    pytest.importorskip("timm")
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["timm_model.py", "--epochs", "2"])
    runpy.run_path(str(EXAMPLES / "timm_model.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(r"\d\d BatchNorm layers are adapted", printed)
    assert len(last_numbers(printed, "fog")) == 2


def test_video(tmp_path: Path) -> None:
    """Smoothing over neighbors helps where labels come in runs."""
    printed = run("video", "--frames", "500", folder=tmp_path)
    source, _, _, smoothed = last_numbers(printed, "500")
    assert smoothed < source


def test_contact_sheet(tmp_path: Path) -> None:
    run("contact_sheet", "--out", "sheet.png", folder=tmp_path)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert min(sheet.size) > 500


def test_imagenet_skips_models_that_are_missing(tmp_path: Path) -> None:
    printed = run("imagenet", "--clean", ".", "--corrupted", ".", folder=tmp_path)
    assert "resnet-50-keras is skipped" in printed


@contextlib.contextmanager
def service(folder: Path) -> Iterator[str]:
    """The address of a running service, that is stopped as a process manager does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, str(EXAMPLES / "service.py"), "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)  # noqa: S603 - our own
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/openapi.json", timeout=10).close()  # noqa: S310
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ask(address: str, body: bytes | None = None) -> str:
    with urllib.request.urlopen(address, data=body, timeout=60) as answer:  # noqa: S310
        return str(answer.read().decode())


def test_service_adapts_per_camera_and_resumes_after_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    photographs = load_bundled_images()
    pictures = []
    for pixels in photographs.images[:20]:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="png")
        pictures.append(buffer.getvalue())

    with service(tmp_path) as address:
        found = [json.loads(ask(f"{address}/predict?camera=gate", body)) for body in pictures]
        truth = [photographs.classes[label] for label in photographs.labels[:20]]
        assert sum(each["label"] == name for each, name in zip(found, truth, strict=True)) >= 15
        ask(f"{address}/predict?camera=roof", pictures[0])
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(f"{address}/predict?camera=gate", b"no image")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(f"{address}/predict?camera=../../outside", pictures[0])
    with service(tmp_path) as address:
        for camera in ("gate", "roof"):
            ask(f"{address}/predict?camera={camera}", pictures[0])
        for camera, count in (("gate", 21), ("roof", 2)):
            metrics = ask(f"{address}/metrics?camera={camera}")
            assert f'rtta_images_total{{method="realistic",camera="{camera}"}} {count}' in metrics
            assert metrics.count("# TYPE rtta_images_total") == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(f"{address}/metrics?camera=cellar")
        assert json.loads(ask(f"{address}/reset?camera=gate", b"")) == {"reset": "gate"}
