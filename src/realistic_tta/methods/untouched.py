"""What the methods share that leave the network as it is: source.py and lame.py."""

from __future__ import annotations

import copy
from typing import ClassVar

from torch import nn

from realistic_tta.layers.network import is_batch_norm, other_normalizations

from .base import AdaptedModel
from .report import Report, SkippedLayer


class UntouchedNetwork(AdaptedModel):
    """A method with nothing to learn: it counts batches and knows no more after them.

    reason: why BatchNorm layers are left alone, for the report.
    """

    reason: ClassVar[str]

    def reset(self) -> None:
        """Forgets how many batches were seen; there is nothing else."""
        self.step.zero_()

    def freeze(self) -> nn.Module:
        """A copy of the network."""
        return copy.deepcopy(self.network)

    def report(self) -> Report:
        """Every normalisation layer, left alone."""
        left = [
            SkippedLayer(name, type(module).__name__, self.reason)
            for name, module in self.network.named_modules()
            if is_batch_norm(module)
        ]
        left += [
            SkippedLayer(name, type(module).__name__, reason)
            for name, module, reason in other_normalizations(self.network)
        ]
        return Report(self.name, int(self.step), (), tuple(left))
