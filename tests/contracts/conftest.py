from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from contracts.variants import VARIANTS


@pytest.fixture(autouse=True, scope="module")
def _graphs_run_as_python() -> Iterator[None]:
    """compile=True takes its own path here; tests/wrappers/test_compiled.py compiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda function, **_: function)
        yield


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
