"""Networks and batches that the tests adapt. Everything is made on the CPU by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from realistic_tta import ServedModel
from realistic_tta.models.resnet import CifarResNet

CPU = torch.device("cpu")


@contextmanager
def on_cpu(seed: int = 0) -> Iterator[None]:
    """Makes modules on the CPU, with the same weights each time."""
    with CPU, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def randomize(network: nn.Module, seed: int = 0) -> nn.Module:
    """Gives BatchNorm layers affine parameters and source statistics that differ by channel."""
    generator = torch.Generator(CPU).manual_seed(seed)

    def uniform(like: Tensor, low: float, high: float) -> Tensor:
        return torch.rand(like.shape, generator=generator, device=CPU) * (high - low) + low

    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            if module.affine:
                module.weight.data = uniform(module.weight, 0.5, 1.5)
                module.bias.data = uniform(module.bias, -0.3, 0.3)
            if module.running_mean is not None and module.running_var is not None:
                module.running_mean = uniform(module.running_mean, -0.5, 0.5)
                module.running_var = uniform(module.running_var, 0.5, 2.0)
    return network.eval()


def convolutional(classes: int = 5) -> nn.Module:
    """A small image network with three BatchNorm layers."""
    with on_cpu():
        return randomize(
            nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 12, 3, stride=2, padding=1),
                nn.BatchNorm2d(12),
                nn.ReLU(),
                nn.Conv2d(12, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Dropout(0.5),
                nn.Linear(16, classes),
            )
        )


def residual() -> nn.Module:
    """The 19-layer CIFAR ResNet."""
    with on_cpu():
        return randomize(CifarResNet(20, 10))


def signal() -> nn.Module:
    """One-dimensional signals: BatchNorm1d on three and on two dimensions."""
    with on_cpu():
        return randomize(
            nn.Sequential(
                nn.Conv1d(2, 6, 5),
                nn.BatchNorm1d(6),
                nn.ReLU(),
                nn.Conv1d(6, 10, 5, bias=False),
                nn.BatchNorm1d(10, affine=False),
                nn.ReLU(),
                nn.AdaptiveAvgPool1d(4),
                nn.Flatten(),
                nn.Linear(40, 7),
            )
        )


def images(count: int, seed: int = 0, side: int = 12) -> Tensor:
    """A shifted batch: bright, low contrast, each image its own level."""
    generator = torch.Generator(CPU).manual_seed(seed)
    level = torch.rand(count, 3, 1, 1, generator=generator, device=CPU)
    noise = torch.rand(count, 3, side, side, generator=generator, device=CPU)
    return 0.3 + 0.4 * level + 0.3 * noise


def signals(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator(CPU).manual_seed(seed)
    return torch.randn(count, 2, 40, generator=generator, device=CPU).cumsum(-1)


def stream(sizes: list[int], make: Callable[..., Tensor] = images, **how: int) -> list[Tensor]:
    return [make(size, seed, **how) for seed, size in enumerate(sizes)]


@contextmanager
def interrupted_after(passes: int, network: nn.Module) -> Iterator[None]:
    """While the context lasts, the network's forward is interrupted after so many whole ones."""
    left = passes

    def interrupt(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    hook = network.register_forward_hook(interrupt)
    try:
        yield
    finally:
        hook.remove()


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether two states are equal to the bit."""
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def is_free(adapted: ServedModel) -> bool:
    """Whether another thread can take the lock."""
    free: list[bool] = []

    def try_lock() -> None:
        free.append(adapted._lock.lock.acquire(timeout=5))
        if free[0]:
            adapted._lock.lock.release()

    thread = threading.Thread(target=try_lock)
    thread.start()
    thread.join()
    return free[0]
