"""The settings that choose a TEMA momentum, shared by tema and rectified_tema."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import nn

from realistic_tta.errors import SettingError
from realistic_tta.functional.momentum import choose_momentum

from .checks import check_count, check_number, check_switch


@dataclass(frozen=True)
class MomentumSettings:
    """How much the current batch weighs in the moving average.

    momentum: "auto" chooses by Eq. 5 from the size of each batch as it comes, or a fixed number.
    classes: how many classes the network tells apart; only "auto" needs it.
    source_batch_size: batch size of the network's training (128 on CIFAR, 256 on ImageNet).
    start: where the average starts: "standard", at mean 0 and variance 1, as the paper's program,
        or "source", at the statistics from training, which serves short streams better.
    robust: an image far outside what the network was trained on counts for next to nothing, so
        that none can drag the statistics away (statistics/trust.py).
    """

    classes: int | None = None
    source_batch_size: int = 128
    momentum: float | Literal["auto"] = "auto"
    start: Literal["standard", "source"] = "standard"
    robust: bool = False

    def __post_init__(self) -> None:
        if self.start not in ("standard", "source"):
            raise SettingError(f'start is {self.start!r}; expected "standard" or "source"')
        check_switch("robust", self.robust)
        check_count("source_batch_size", self.source_batch_size)
        if self.classes is not None:
            check_count("classes", self.classes)
        if self.momentum != "auto":
            check_number('momentum (unless "auto")', self.momentum, low=0, high=1)
            if self.momentum == 0:
                raise SettingError("momentum is 0, so that no batch would count; expected above 0")

    def momentum_for(self, batch_size: int) -> float:
        """The weight of a batch of this size."""
        if self.momentum != "auto":
            return self.momentum
        assert self.classes is not None  # checked when the network was adapted
        choose = choose_momentum if torch.compiler.is_compiling() else _choose_once
        return choose(self.classes, self.source_batch_size, batch_size)


_choose_once = lru_cache(maxsize=4096)(choose_momentum)  # each batch asks; a graph cannot remember


def count_classes(network: nn.Module) -> int:
    """The outputs of the network's last Linear layer."""
    linear = [
        (name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)
    ]
    if not linear:
        raise SettingError(
            "the network has no Linear layer to tell the number of classes by; "
            "pass it, for instance adapt(network, classes=10)"
        )
    name, last = linear[-1]
    if last.out_features < 2:
        raise SettingError(
            f'the last Linear layer "{name}" has {last.out_features} output, which does not tell '
            "the number of classes; pass it, for instance adapt(network, classes=2)"
        )
    return last.out_features
