"""What holds for every test: one torch thread, for two beside a busy process are slower."""

from __future__ import annotations

import importlib.util
import os

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
# Some virtual machines announce AMX and let no program use it: half precision then ends torch's
# process (illegal instruction). oneDNN reads this at its first use; processes of tests inherit it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is slow
hypothesis.settings.load_profile("any machine")

# Beside a CPU build of torch, torchvision's wheel stops at two operators that it cannot load. No
# network that the tests adapt uses them: declared without a body, they let the import pass.
if importlib.util.find_spec("torchvision"):
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        TORCHVISION = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            TORCHVISION.define(
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
