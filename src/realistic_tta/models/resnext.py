"""ResNeXt for 32 px images (Xie 2017): ResNeXt-29 4x32d, as RobustBench builds it.

Inputs are RGB images in [0, 1]; the model normalizes them. `features` returns the input of the
classifier. Parameter names are RobustBench's; its checkpoints load directly.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .resnet import Normalize, shortcut_for

EXPANSION = 4  # output channels of a block per unit of width


class GroupedBottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 in `groups` channel groups, and 1 x 1; stride on the 3 x 3."""

    def __init__(
        self, inputs: int, width: int, stride: int, *, groups: int, base_width: int
    ) -> None:
        super().__init__()
        inner = groups * (width * base_width // 64)
        outputs = width * EXPANSION
        self.conv_reduce = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(inner)
        self.conv_conv = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(inner)
        self.conv_expand = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut_for(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the input."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn_reduce(self.conv_reduce(x)))
        x = self.relu(self.bn(self.conv_conv(x)))
        x = self.bn_expand(self.conv_expand(x)) + shortcut
        return nn.functional.relu_(x)


class CifarResNeXt(nn.Module):
    """ResNeXt for 32 px images with 9 n + 2 layers; `groups` is the paper's cardinality."""

    def __init__(self, depth: int, groups: int, base_width: int, classes: int) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 9)
        if rest or blocks < 1:
            raise ValueError(f"depth is {depth}; expected 9 n + 2, such as 29 or 38")

        def stage(inputs: int, width: int, stride: int) -> nn.Sequential:
            sizes = [(inputs, stride)] + [(width * EXPANSION, 1)] * (blocks - 1)
            return nn.Sequential(
                *(
                    GroupedBottleneck(start, width, step, groups=groups, base_width=base_width)
                    for start, step in sizes
                )
            )

        self.normalize = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        self.conv_1_3x3 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn_1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.stage_1 = stage(64, 64, 1)
        self.stage_2 = stage(256, 128, 2)
        self.stage_3 = stage(512, 256, 2)
        self.classifier = nn.Linear(1024, classes)

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the classifier, (image, 1024)."""
        x = self.relu(self.bn_1(self.conv_1_3x3(self.normalize(images))))
        x = self.stage_3(self.stage_2(self.stage_1(x)))
        return torch.mean(x, dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, (image, class)."""
        logits: Tensor = self.classifier(self.features(images))
        return logits
