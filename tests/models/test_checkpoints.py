"""Published files load; a file that does not fit says why, and runs nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from models.published import (
    Shapes,
    robustbench_resnext,
    robustbench_wrn,
    stored,
    torchopt_resnet56,
    torchvision_resnet50,
)
from torch import Tensor

from realistic_tta.errors import ModelError
from realistic_tta.models.checkpoints import load_model, load_weights
from realistic_tta.models.registry import build
from realistic_tta.models.resnet import CifarResNet

HALVES = torch.full((1, 3, 1, 1), 0.5)


def save(content: object, tmp_path: Path, **options: Any) -> Path:
    path = tmp_path / "weights.pt"
    torch.save(content, path, **options)
    return path


def assert_loaded(name: str, path: Path, shapes: Shapes, **options: Any) -> None:
    model = load_model(name, path, **options)
    assert not model.training
    found, expected = model.state_dict(), stored(shapes)
    assert found.keys() >= expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "module.model."])
@pytest.mark.parametrize("nested", [True, False])
def test_robustbench_files_load(prefix: str, nested: bool, tmp_path: Path) -> None:
    """Weights under 'state_dict' or directly, whatever wrapped the model when it was saved."""
    state: dict[str, Any] = stored(robustbench_wrn(40, 2, 10), prefix)
    content = {"state_dict": state, "epoch": 200, "model": "wrn"} if nested else state
    assert_loaded("wrn-40-2-augmix", save(content, tmp_path), robustbench_wrn(40, 2, 10))


def test_standard_loads_with_the_training_notes_beside_it(tmp_path: Path) -> None:
    """NumPy numbers, such as a best accuracy, are skipped over, not run."""
    numpy = pytest.importorskip("numpy")
    shapes = robustbench_wrn(28, 10, 10)
    content = {"state_dict": stored(shapes, "module."), "best": numpy.float64(94.8)}
    assert_loaded("wrn-28-10-standard", save(content, tmp_path), shapes)


def test_resnext_loads_in_the_old_format_of_torch(tmp_path: Path) -> None:
    shapes = robustbench_resnext(100)
    content = {"state_dict": stored(shapes, "module.")}
    path = save(content, tmp_path, _use_new_zipfile_serialization=False)
    assert_loaded("resnext-29-augmix", path, shapes)


def test_the_model_for_the_other_cifar_loads_when_asked_for(tmp_path: Path) -> None:
    shapes = robustbench_wrn(40, 2, 100)
    assert_loaded("wrn-40-2-augmix", save(stored(shapes), tmp_path), shapes, classes=100)


def test_torchvisions_old_file_without_batch_counts_loads(tmp_path: Path) -> None:
    shapes = torchvision_resnet50()
    old = {name: shape for name, shape in shapes.items() if "num_batches" not in name}
    assert_loaded("resnet-50-torchvision", save(stored(old), tmp_path), old)


def test_a_file_with_other_names_for_classifier_and_shortcuts_loads(tmp_path: Path) -> None:
    shapes = torchopt_resnet56()
    assert len(shapes) == 344  # tensors of the file
    model = load_model("resnet-56", save(stored(shapes), tmp_path)).state_dict()
    expected = stored(shapes)
    assert len(model) == len(expected)
    assert torch.equal(model["fc.bias"], expected["linear.bias"])
    ours, theirs = "layer3.0.downsample.1.running_var", "layer3.0.shortcut.1.running_var"
    assert torch.equal(model[ours], expected[theirs])


def test_our_own_safetensors_load(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    trained = CifarResNet(20, 10).eval()
    path = tmp_path / "resnet-20.safetensors"
    safetensors.save_file(trained.state_dict(), path)
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(load_model("resnet-20", path)(images), trained(images))


def test_a_models_own_normalization_may_stand_in_the_file(tmp_path: Path) -> None:
    shapes = robustbench_wrn(40, 2, 10)
    content = stored(shapes) | {"mu": HALVES, "sigma": HALVES}
    assert_loaded("wrn-40-2-augmix", save(content, tmp_path), shapes)


def test_another_normalization_is_refused(tmp_path: Path) -> None:
    path = save(stored(robustbench_wrn(40, 2, 10)) | {"mu": HALVES / 2}, tmp_path)
    told = re.escape("its mu is [0.25, 0.25, 0.25], the model's [0.5, 0.5, 0.5]")
    with pytest.raises(ModelError, match=told):
        load_model("wrn-40-2-augmix", path)


def test_a_normalization_is_refused_where_the_model_has_none(tmp_path: Path) -> None:
    path = save(stored(robustbench_wrn(28, 10, 10)) | {"mu": HALVES}, tmp_path)
    with pytest.raises(ModelError, match="the model's absent"):
        load_model("wrn-28-10-standard", path)


def refusal(name: str, path: Path) -> str:
    """What is said; the model is as it was."""
    model = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ModelError) as caught:
        load_weights(model, path, name=name)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    return str(caught.value)


def test_a_misfit_names_what_is_missing_unexpected_and_of_another_shape(tmp_path: Path) -> None:
    state = dict(CifarResNet(20, 10).state_dict())
    del state["bn1.weight"]
    state |= {f"extra{number}": torch.zeros(1) for number in range(5)}
    state["fc.bias"] = torch.zeros(3)
    told = refusal("resnet-20", save(state, tmp_path))
    assert "weights.pt does not fit resnet-20: 1 missing (bn1.weight)" in told
    assert "5 unexpected (extra0; extra1; extra2; ...)" in told
    assert "1 of another shape (fc.bias (3,), expected (10,))" in told
    assert told.endswith("No known model would fit")


def test_a_misfit_names_the_model_that_would_fit(tmp_path: Path) -> None:
    path = save(stored(robustbench_wrn(28, 10, 10), "module."), tmp_path)
    assert refusal("resnet-20", path).endswith("would fit wrn-28-10-standard with 10 classes")


def test_a_misfit_names_the_number_of_classes_that_would_fit(tmp_path: Path) -> None:
    told = refusal("resnet-20", save(CifarResNet(20, 100).state_dict(), tmp_path))
    assert "fc.weight (100, 64), expected (10, 64)" in told
    assert told.endswith("resnet-20 with 100 classes")


@pytest.mark.parametrize("shape", [(), (0, 64), (10,)])
def test_a_classifier_that_is_none_is_a_misfit_too(shape: tuple[int, ...], tmp_path: Path) -> None:
    state = CifarResNet(20, 10).state_dict() | {"fc.weight": torch.zeros(shape)}
    assert f"fc.weight {shape}, expected (10, 64)" in refusal("resnet-20", save(state, tmp_path))


def test_a_download_page_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "Standard.pt"
    path.write_text("<!DOCTYPE html><html>Virus scan warning</html>")
    assert "is a web page, not weights" in refusal("resnet-20", path)


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["RTTA_TEST_TRAP"],)


def test_code_in_a_file_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = tmp_path / "trap"
    monkeypatch.setenv("RTTA_TEST_TRAP", str(trap))
    path = save({"state_dict": CifarResNet(20, 10).state_dict(), "more": Malicious()}, tmp_path)
    assert "cannot be read as weights alone" in refusal("resnet-20", path)
    assert not trap.exists()


@pytest.mark.parametrize("kept", [0, 1, 100, 5000, 200_000])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_cut_file_is_refused(kept: int, zipped: bool, tmp_path: Path) -> None:
    state = CifarResNet(20, 10).state_dict()
    path = save(state, tmp_path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[:kept])
    assert "cannot be read as weights alone" in refusal("resnet-20", path)


def test_a_cut_safetensors_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "cut.safetensors"
    path.write_bytes(b"\x10\x00\x00")
    assert "is not a safetensors file" in refusal("resnet-20", path)


@pytest.mark.parametrize(
    ("content", "held"),
    [
        ([1, 2], "holds a list"),
        ({"last": {"a": 1}, "best": 2}, "holds a dict of last; best;"),
        ({}, "holds a dict"),
        (torch.zeros(3), "holds a Tensor"),
    ],
)
def test_other_contents_are_named(content: list[int] | Tensor, held: str, tmp_path: Path) -> None:
    told = refusal("resnet-20", save(content, tmp_path))
    assert held in told
    assert "expected tensors by name, or such a dict under 'state_dict'" in told


def test_a_missing_file_and_a_folder_are_answered(tmp_path: Path) -> None:
    assert "does not exist; expected a file of weights" in refusal("resnet-20", tmp_path / "no.pt")
    assert "is a folder; expected a file of weights for resnet-20" in refusal("resnet-20", tmp_path)
