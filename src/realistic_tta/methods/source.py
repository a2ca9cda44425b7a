"""The network as it was trained: what every method is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .batch import Batch
from .untouched import UntouchedNetwork


@dataclass(frozen=True)
class SourceSettings:
    """Nothing to set."""


class Source(UntouchedNetwork):
    """The network as trained, in eval mode, behind the same calls as every method."""

    name = "source"
    compiles = True
    reason = "source uses the statistics from training"
    settings_type = SourceSettings

    def predict(self, batch: Batch) -> Any:
        """The network's own output."""
        outputs = self.run(batch)
        self.remember()
        return outputs
