"""Names and shapes of published checkpoints, written down from their layout, not from our classes.

`stored` gives each tensor a value of its own at the cost of one number in the file.
"""

from __future__ import annotations

import torch
from torch import Tensor

Shapes = dict[str, tuple[int, ...]]


def norm(name: str, channels: int) -> Shapes:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{part}": (channels,) for part in parts} | {f"{name}.num_batches_tracked": ()}


def robustbench_wrn(depth: int, width: int, classes: int) -> Shapes:
    shapes: Shapes = {"conv1.weight": (16, 3, 3, 3)}
    inputs = 16
    for stage, base in enumerate((16, 32, 64), start=1):
        outputs = base * width
        for block in range((depth - 4) // 6):
            name = f"block{stage}.layer.{block}"
            shapes |= norm(f"{name}.bn1", inputs)
            shapes[f"{name}.conv1.weight"] = (outputs, inputs, 3, 3)
            shapes |= norm(f"{name}.bn2", outputs)
            shapes[f"{name}.conv2.weight"] = (outputs, outputs, 3, 3)
            if inputs != outputs:
                shapes[f"{name}.convShortcut.weight"] = (outputs, inputs, 1, 1)
            inputs = outputs
    return shapes | norm("bn1", inputs) | {"fc.weight": (classes, inputs), "fc.bias": (classes,)}


def robustbench_resnext(classes: int) -> Shapes:
    shapes: Shapes = {"conv_1_3x3.weight": (64, 3, 3, 3)} | norm("bn_1", 64)
    inputs = 64
    for stage, (inner, outputs) in enumerate(((128, 256), (256, 512), (512, 1024)), start=1):
        for block in range(3):
            name = f"stage_{stage}.{block}"
            shapes[f"{name}.conv_reduce.weight"] = (inner, inputs, 1, 1)
            shapes |= norm(f"{name}.bn_reduce", inner)
            shapes[f"{name}.conv_conv.weight"] = (inner, inner // 4, 3, 3)
            shapes |= norm(f"{name}.bn", inner)
            shapes[f"{name}.conv_expand.weight"] = (outputs, inner, 1, 1)
            shapes |= norm(f"{name}.bn_expand", outputs)
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= norm(f"{name}.downsample.1", outputs)
            inputs = outputs
    return shapes | {"classifier.weight": (classes, 1024), "classifier.bias": (classes,)}


def torchvision_resnet50() -> Shapes:
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        width = 32 * 2**stage
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            sizes = ((width, inputs, 1), (width, width, 3), (4 * width, width, 1))
            for layer, (outputs, before, size) in enumerate(sizes, start=1):
                shapes[f"{name}.conv{layer}.weight"] = (outputs, before, size, size)
                shapes |= norm(f"{name}.bn{layer}", outputs)
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (4 * width, inputs, 1, 1)
                shapes |= norm(f"{name}.downsample.1", 4 * width)
            inputs = 4 * width
    return shapes | {"fc.weight": (1000, 2048), "fc.bias": (1000,)}


def torchopt_resnet56() -> Shapes:
    shapes: Shapes = {"conv1.weight": (16, 3, 3, 3)} | norm("bn1", 16)
    inputs = 16
    for stage, outputs in enumerate((16, 32, 64), start=1):
        for block in range(9):
            name = f"layer{stage}.{block}"
            for layer, before in ((1, inputs), (2, outputs)):
                shapes[f"{name}.conv{layer}.weight"] = (outputs, before, 3, 3)
                shapes |= norm(f"{name}.bn{layer}", outputs)
            if inputs != outputs:
                shapes[f"{name}.shortcut.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= norm(f"{name}.shortcut.1", outputs)
            inputs = outputs
    return shapes | {"linear.weight": (10, 64), "linear.bias": (10,)}


def stored(shapes: Shapes, prefix: str = "") -> dict[str, Tensor]:
    state = {}
    for number, (name, shape) in enumerate(shapes.items()):
        counts = name.endswith("num_batches_tracked")
        value = torch.tensor(number) if counts else torch.tensor(number / 1000)
        state[prefix + name] = value.expand(shape)
    return state
