"""Finds out how many classes a model predicts."""

from __future__ import annotations

from torch import nn

from realistic_tta.errors import OptionError


def count_classes(model: nn.Module) -> int:
    """The number of outputs of the model's last Linear layer."""
    linear = [each for each in model.named_modules() if isinstance(each[1], nn.Linear)]
    if not linear:
        raise OptionError(
            "the model has no Linear layer from which to read the number of classes; "
            "pass it, for instance classes=10"
        )
    name, last = linear[-1]
    assert isinstance(last, nn.Linear)
    if last.out_features < 2:
        raise OptionError(
            f'the last Linear layer "{name}" has {last.out_features} output, so the number of '
            "classes is unknown; pass it, for instance classes=2"
        )
    return last.out_features
