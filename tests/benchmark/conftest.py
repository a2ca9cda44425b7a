from __future__ import annotations

from pathlib import Path

import pytest
from bench_subjects import TINY, write_world

from realistic_tta.models.registry import MODELS


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten images of every corruption and severity, and a model."""
    folder = tmp_path_factory.mktemp("world") / "dataset"
    write_world(folder, images=10)
    return folder


@pytest.fixture
def world(small_world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RTTA_DATA", str(small_world))
    monkeypatch.setitem(MODELS, "tiny", TINY)
    return small_world
