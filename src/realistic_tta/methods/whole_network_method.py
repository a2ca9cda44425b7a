"""What cotta and adacontrast share: they train every parameter, and draw at random."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from realistic_tta.errors import ModelError
from realistic_tta.layers.network import layers_with_parameters

from .checks import check_seed
from .gradient_method import GradientMethod, TrainingSettings
from .optimizers import Memory


@dataclass(frozen=True)
class SeededSettings(TrainingSettings):
    """seed: of everything that is drawn at random."""

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seed(self.seed)


class WholeNetworkMethod(GradientMethod):
    """A method that trains all parameters. Its memory also holds `generator_state`, (byte,)."""

    settings: SeededSettings

    def layers_to_train(self) -> Iterable[tuple[str, nn.Module]]:
        """All layers that have parameters of their own."""
        layers = list(layers_with_parameters(self.network))
        if not layers:
            raise ModelError(
                f"{self.name} trains all parameters of a network, and this one has none"
            )
        return layers

    def at_start(self) -> Memory:
        """A generator with the seed of the settings."""
        generator = torch.Generator("cpu").manual_seed(self.settings.seed)
        return super().at_start() | {"generator_state": generator.get_state()}


def generator_at(state: Tensor) -> torch.Generator:
    """A generator that goes on from a state; the state itself stays as it is."""
    generator = torch.Generator("cpu")
    generator.set_state(state.cpu())
    return generator
