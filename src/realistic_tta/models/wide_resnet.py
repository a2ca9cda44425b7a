"""Wide residual networks for 32 px images (Zagoruyko 2016): WRN-28-10, WRN-40-2, WRN-16-2.

Inputs are RGB images in [0, 1]; the model normalizes them. `features` returns the input of the
classifier. Parameter names are RobustBench's; its checkpoints load directly.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .resnet import convolution


class PreactivationBlock(nn.Module):
    """Two 3 x 3 convolutions, each after BatchNorm and ReLU.

    If the number of channels changes, the shortcut starts from the normalized input as well.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), convolution(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), convolution(outputs, outputs, 3)
        self.relu = nn.ReLU(inplace=True)
        changes = inputs != outputs
        self.convShortcut = convolution(inputs, outputs, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the input."""
        active = self.relu(self.bn1(x))
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        residual: Tensor = self.conv2(self.relu(self.bn2(self.conv1(active))))
        return residual + shortcut


class _Stage(nn.Module):
    """A sequence of blocks. It is a module of its own because of the published names."""

    def __init__(self, inputs: int, outputs: int, blocks: int, stride: int) -> None:
        super().__init__()
        rest = (PreactivationBlock(outputs, outputs, 1) for _ in range(blocks - 1))
        self.layer = nn.Sequential(PreactivationBlock(inputs, outputs, stride), *rest)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x)
        return outputs


class WideResNet(nn.Module):
    """WRN-depth-width: 6 n + 4 layers, `width` times as many channels as a plain ResNet.

    normalize: applied to the images; None for RobustBench's "Standard".
    """

    def __init__(
        self, depth: int, width: int, classes: int, normalize: nn.Module | None = None
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise ValueError(f"depth is {depth}; expected 6 n + 4, such as 16, 28 or 40")
        self.normalize = nn.Identity() if normalize is None else normalize
        self.conv1 = convolution(3, 16, 3)
        self.block1 = _Stage(16, 16 * width, blocks, 1)
        self.block2 = _Stage(16 * width, 32 * width, blocks, 2)
        self.block3 = _Stage(32 * width, 64 * width, blocks, 2)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.relu = nn.ReLU(inplace=True)
        self.fc = nn.Linear(64 * width, classes)

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the classifier, (image, 64 width)."""
        x = self.conv1(self.normalize(images))
        x = self.block3(self.block2(self.block1(x)))
        x = self.relu(self.bn1(x))
        return torch.mean(x, dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, (image, class)."""
        logits: Tensor = self.fc(self.features(images))
        return logits
