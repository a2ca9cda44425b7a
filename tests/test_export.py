"""A frozen model is a plain one: it exports, and runs without this library."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from subjects import convolutional, images, stream

from realistic_tta import adapt


def test_frozen_exports_to_onnx_and_runs_there(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    adapted = adapt(convolutional())
    for batch in stream([16, 4, 1]):
        adapted(batch)
    plain, path = adapted.freeze(), tmp_path / "frozen.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(plain, (images(4),), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: images(4, 9).numpy()})
    expected = plain(images(4, 9)).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-3)


def test_frozen_runs_without_this_library(tmp_path: Path) -> None:
    adapted = adapt(convolutional())
    adapted(images(8))
    plain = adapted.freeze()
    torch.save((plain, images(3), plain(images(3)).detach()), tmp_path / "plain.pt")
    program = (
        "import sys, torch; torch.set_num_threads(1);"
        "plain, batch, expected = torch.load(sys.argv[1], weights_only=False);"
        "torch.testing.assert_close(plain(batch), expected);"
        "assert 'realistic_tta' not in sys.modules"
    )
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program, str(tmp_path / "plain.pt")], check=True
    )


def test_frozen_compiles() -> None:
    adapted = adapt(convolutional())
    adapted(images(8))
    plain = adapted.freeze()
    compiled = torch.compile(plain, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images(3)), plain(images(3)))
