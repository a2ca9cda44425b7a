"""The network as it was trained: what every method is compared with."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn

from realistic_tta.normalization.network import is_batch_norm, other_normalizations

from .base import AdaptedNetwork
from .batch import Batch
from .report import LeftAlone, Report


@dataclass(frozen=True)
class SourceSettings:
    """Nothing to set."""


class Source(AdaptedNetwork):
    """The network as trained, in eval mode, behind the same calls as every method."""

    name = "source"
    settings_type = SourceSettings

    def predict(self, batch: Batch) -> Any:
        """The network's own output."""
        outputs = self.run(batch)
        self.remember()
        return outputs

    def reset(self) -> None:
        """Forgets how many batches were seen; there is nothing else."""
        self.step.zero_()

    def freeze(self) -> nn.Module:
        """A copy of the network."""
        return copy.deepcopy(self.network)

    def report(self) -> Report:
        """Every normalisation layer, left alone."""
        left = [
            LeftAlone(name, type(module).__name__, "source uses the statistics from training")
            for name, module in self.network.named_modules()
            if is_batch_norm(module)
        ]
        left += [
            LeftAlone(name, type(module).__name__, reason)
            for name, module, reason in other_normalizations(self.network)
        ]
        return Report(self.name, int(self.step), (), tuple(left))
