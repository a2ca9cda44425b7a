"""Residual networks (He 2016): CIFAR ResNets for 32 px images, and ResNet-50.

Inputs are RGB images in [0, 1]; the model normalizes them. `features` returns the input of the
classifier. Parameter names are torchvision's; its checkpoints load directly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KERAS_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)  # the first convolution has the scale


class Normalize(nn.Module):
    """Normalizes each color channel with a fixed mean and standard deviation."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return (images - mean) / std; images: (image, color, row, column) in [0, 1]."""
        return (images - self.mean) / self.std


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the image size at stride 1."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def shortcut_for(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """Return a 1 x 1 convolution with BatchNorm, or None where the identity fits."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = shortcut_for(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the input."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x)) + shortcut
        return nn.functional.relu_(x)


class PaddedBlock(BasicBlock):
    """Basic block with a parameter-free shortcut: every second pixel, new channels zero.

    This is option A of He 2016, used for CIFAR: one BatchNorm per convolution.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.downsample = _Subsample(stride, width - inputs) if inputs != width else None


class _Subsample(nn.Module):
    def __init__(self, stride: int, more_channels: int) -> None:
        super().__init__()
        self.stride, self.more_channels = stride, more_channels

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :, :: self.stride, :: self.stride]
        before = self.more_channels // 2
        return nn.functional.pad(x, (0, 0, 0, 0, before, self.more_channels - before))


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1.

    The stride is on the 3 x 3 (v1.5, torchvision) or on the first 1 x 1 (v1).
    """

    expansion = 4
    stride_on_first = False

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        first, second = (stride, 1) if self.stride_on_first else (1, stride)
        outputs = width * self.expansion
        self.conv1, self.bn1 = convolution(inputs, width, 1, first), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, second), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut_for(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the input."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x)) + shortcut
        return nn.functional.relu_(x)


class BottleneckV1(Bottleneck):
    """Bottleneck of He 2016 as first published, with the stride on the first 1 x 1."""

    stride_on_first = True


def _stage(
    block: type[BasicBlock | Bottleneck], inputs: int, width: int, blocks: int, stride: int
) -> nn.Sequential:
    outputs = width * block.expansion
    rest = (block(outputs, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(block(inputs, width, stride), *rest)


class CifarResNet(nn.Module):
    """CIFAR ResNet for 32 px images with 6 n + 2 layers: 20, 32, 44, 56 or 110."""

    block: type[BasicBlock] = PaddedBlock

    def __init__(self, depth: int, classes: int) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth is {depth}; expected 6 n + 2, such as 20 or 56")
        self.normalize: nn.Module = Normalize(CIFAR_MEAN, CIFAR_STD)
        self.conv1, self.bn1 = convolution(3, 16, 3), nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = _stage(self.block, 16, 16, blocks, 1)
        self.layer2 = _stage(self.block, 16, 32, blocks, 2)
        self.layer3 = _stage(self.block, 32, 64, blocks, 2)
        self.fc = nn.Linear(64, classes)

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the classifier, (image, 64)."""
        x = self.relu(self.bn1(self.conv1(self.normalize(images))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return torch.mean(x, dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, (image, class)."""
        logits: Tensor = self.fc(self.features(images))
        return logits


class ProjectionResNet(CifarResNet):
    """CIFAR ResNet of the package torch-optim: 1 x 1 shortcuts (option B), no normalization."""

    block = BasicBlock

    def __init__(self, depth: int, classes: int) -> None:
        super().__init__(depth, classes)
        self.normalize = nn.Identity()


class ResNet50(nn.Module):
    """ResNet-50 for 224 px images, v1.5 as in torchvision."""

    block: type[Bottleneck] = Bottleneck

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD)
        self.conv1, self.bn1 = convolution(3, 64, 7, 2), nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _stage(self.block, 64, 64, 3, 1)
        self.layer2 = _stage(self.block, 256, 128, 4, 2)
        self.layer3 = _stage(self.block, 512, 256, 6, 2)
        self.layer4 = _stage(self.block, 1024, 512, 3, 2)
        self.fc = nn.Linear(2048, classes)

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the classifier, (image, 2048)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.normalize(images)))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return torch.mean(x, dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, (image, class)."""
        logits: Tensor = self.fc(self.features(images))
        return logits


class ResNet50V1(ResNet50):
    """ResNet-50 of Keras: v1, with Keras' BatchNorm constants."""

    block = BottleneckV1

    def __init__(self, classes: int = 1000) -> None:
        super().__init__(classes)
        self.normalize = Normalize(KERAS_MEAN, (1.0, 1.0, 1.0))
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps, module.momentum = 1e-3, 0.01  # Keras calls the latter 0.99
