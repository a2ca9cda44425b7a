"""Methods as a research program has them: no check, no exclusion, nothing undone.

To show beside ours what a guard is worth. Each is a callable from images to logits that changes its
own copy of the network. Used by trial.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from realistic_tta.functional.momentum import choose_momentum

CLASSES, SOURCE_BATCH_SIZE = 10, 128  # of the package's network

Plain = Callable[[Tensor], Tensor]


def _batch_norms(network: nn.Module) -> list[_BatchNorm]:
    return [module for module in network.modules() if isinstance(module, _BatchNorm)]


def plain_tbn(network: nn.Module) -> Plain:
    """Each batch by its own statistics: the BatchNorm layers in train mode."""
    network = copy.deepcopy(network).eval()
    for layer in _batch_norms(network):
        layer.train()
    return torch.no_grad()(network)


def plain_tema(network: nn.Module) -> Plain:
    """The running statistics carried on, then the prediction with them (paper, Eq. 3-5)."""
    network = copy.deepcopy(network).eval()
    layers = _batch_norms(network)
    for layer in layers:
        layer.reset_running_stats()  # mean 0 and variance 1
        layer.register_forward_pre_hook(_advance)

    @torch.no_grad()
    def predict(images: Tensor) -> Tensor:
        momentum = choose_momentum(CLASSES, SOURCE_BATCH_SIZE, len(images))
        for layer in layers:
            layer.momentum = momentum
        logits: Tensor = network(images)
        return logits

    return predict


def _advance(layer: nn.Module, inputs: tuple[Tensor]) -> None:
    assert isinstance(layer, _BatchNorm)
    running = (layer.running_mean, layer.running_var)
    nn.functional.batch_norm(inputs[0], *running, training=True, momentum=layer.momentum or 0.0)


def plain_medbn(network: nn.Module) -> Plain:
    """Medians in place of means, in the manner of MedBN (Park 2024): each batch by its own."""
    network = copy.deepcopy(network).eval()
    for layer in _batch_norms(network):
        layer.register_forward_pre_hook(_take_medians)
    return torch.no_grad()(network)


def _take_medians(layer: nn.Module, inputs: tuple[Tensor]) -> None:
    """Of the images' means, and of their mean squared distances from it."""
    values = inputs[0].flatten(start_dim=2)  # (image, channel, position)
    layer.running_mean = values.mean(dim=2).median(dim=0).values  # (channel,)
    squares = (values - layer.running_mean[:, None]).square().mean(dim=2)
    layer.running_var = squares.median(dim=0).values


def plain_tent(network: nn.Module) -> Plain:
    """Entropy lowered by the BatchNorm layers' weights, by Adam: tent (Wang 2021)."""
    network = copy.deepcopy(network).eval().requires_grad_(requires_grad=False)
    layers = _batch_norms(network)
    for layer in layers:
        layer.train().requires_grad_()
    weights = [weight for layer in layers for weight in layer.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3)

    def predict(images: Tensor) -> Tensor:
        logits: Tensor = network(images)
        entropy = -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1).mean()
        optimizer.zero_grad()
        entropy.backward()
        optimizer.step()
        return logits.detach()

    return predict


PLAIN: dict[str, Callable[[nn.Module], Plain]] = {
    "plain_tbn": plain_tbn,
    "plain_tema": plain_tema,
    "plain_medbn": plain_medbn,
    "plain_tent": plain_tent,
}
