"""One batch, and what both networks say of it: the adapted one, and the one as trained.

Used by guard.py, which compares them. The adapted one has answered already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .bad_samples import chosen, merged
from .health import logits_in

if TYPE_CHECKING:
    from .base import AdaptedModel


class BothNetworks:
    """One batch that the method has adapted to.

    kept: which of its samples were not faulty, (image,).
    judged: the method's logits of those, (image, class), if its outputs are means over several
        passes: such means are less sure in form than what they are compared with.
    """

    def __init__(
        self, adapted: AdaptedModel, args: Any, kwargs: Any, outputs: Any, size: int
    ) -> None:
        self.adapted, self.outputs, self.size = adapted, outputs, size
        self.arguments = args, dict(kwargs)
        everything = torch.ones(size, dtype=torch.bool, device="cpu")
        self.kept = everything if adapted.kept is None else adapted.kept.cpu()
        self.judged = adapted.of_one_pass

    def can_be_judged(self) -> bool:
        """Whether the outputs are logits, one row for each image, and not all faulty."""
        logits = logits_in(self.outputs)
        if logits is None or len(logits) != self.size or logits.shape[1] < 2:
            return False
        return bool(self.kept.any())

    def logits(self, asked: Tensor, by_source: Any | None) -> tuple[Tensor, Tensor]:
        """Of the images asked for: the method's and the source's, which is run if it was not."""
        if by_source is None:
            arguments = chosen(self.arguments, asked, self.size)
            source = logits_in(from_source(self.adapted, *arguments))
        else:
            source = logits_in(by_source, asked)
        assert source is not None  # see can_be_judged; the source has the same form
        return self.adapted_logits(asked), source

    def adapted_logits(self, asked: Tensor) -> Tensor:
        """Those of the method alone."""
        if self.judged is not None and len(self.judged) == int(self.kept.sum()):
            return self.judged[asked[self.kept].to(self.judged.device)]
        logits = logits_in(self.outputs, asked)
        assert logits is not None  # see can_be_judged
        return logits

    def by_source(self) -> Any:
        """The outputs of the network as trained; those of faulty samples as they are."""
        if self.kept.all():
            return from_source(self.adapted, *self.arguments)
        good = chosen(self.arguments, self.kept, self.size)
        faulty = chosen(self.outputs, ~self.kept, self.size)
        return merged(from_source(self.adapted, *good), faulty, self.kept)


def from_source(adapted: AdaptedModel, args: Any, kwargs: Any) -> Any:
    """What the network as trained says; nothing is changed."""
    with torch.no_grad():
        return adapted.network(*args, **kwargs)
