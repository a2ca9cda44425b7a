"""One torch thread: two beside another busy process are slower than one."""

from __future__ import annotations

import importlib.util

import pytest
import torch

torch.set_num_threads(1)

# torchvision's wheel is built for another torch than the CPU one; the two operators whose absence
# stops its import are not used by any network that the tests adapt.
if importlib.util.find_spec("torchvision") and not hasattr(torch.ops.torchvision, "nms"):
    TORCHVISION = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        TORCHVISION.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
