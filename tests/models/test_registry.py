from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import pytest
import torch
from models.published import robustbench_wrn, stored

from realistic_tta.cli import main as cli
from realistic_tta.cli.main import main
from realistic_tta.errors import ModelError, OptionError
from realistic_tta.models.checkpoints import load_model
from realistic_tta.models.registry import (
    EMBEDDED,
    MODELS,
    VERDICT,
    build,
    models_folder,
    on_disk,
    outline,
    size,
)

SIZES = {  # parameters and BatchNorm layers, as published
    "cifar10": (269_722, 19),
    "cifar100": (703_284, 13),
    "wrn-28-10-standard": (36_479_194, 25),
    "resnext-29-augmix": (6_900_132, 31),
    "wrn-40-2-augmix": (2_243_546, 37),
    "resnet-50-torchvision": (25_557_032, 53),
    "resnet-50-keras": (25_557_032, 53),
    "resnet-20": (269_722, 19),
    "wrn-16-2": (691_674, 13),
    "efficientnet-lite0": (4_652_008, 49),
    "resnet-56": (855_770, 57),
    "resnet-20-hard-labels": (269_722, 19),
    "resnet-20-soft-labels": (269_722, 19),
    "resnet-20-cifar100-slow-statistics": (275_572, 19),
    "wrn-16-2-augmix": (691_674, 13),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RTTA_DATA", str(tmp_path))
    return tmp_path / "models"


def test_every_model_has_the_published_size() -> None:
    assert {name: size(outline(name)) for name in MODELS} == SIZES


@pytest.mark.parametrize("name", ["resnet-20", "wrn-16-2", "wrn-40-2-augmix", "resnext-29-augmix"])
def test_models_are_built_with_any_number_of_classes(name: str) -> None:
    model = build(name, classes=7).eval()
    with torch.no_grad():
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 7)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    told = 'unknown model "wrn-28-10"; did you mean "wrn-28-10-standard"'
    with pytest.raises(OptionError, match=told):
        build("wrn-28-10")


def test_models_are_looked_for_in_the_cache_unless_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert models_folder() == folder
    monkeypatch.delenv("RTTA_DATA")
    assert models_folder() == Path.home() / ".cache" / "realistic-tta" / "models"


def test_a_model_on_disk_is_loaded_by_its_name_alone(folder: Path) -> None:
    """RobustBench's own folders are understood."""
    with pytest.raises(ModelError, match=r"wrn-40-2-augmix is not on disk.*AugMix_WRN"):
        load_model("wrn-40-2-augmix")
    path = folder / "cifar10" / "corruptions" / "Hendrycks2020AugMix_WRN.pt"
    path.parent.mkdir(parents=True)
    torch.save({"state_dict": stored(robustbench_wrn(40, 2, 10), "module.")}, path)
    assert on_disk("wrn-40-2-augmix") == path
    assert load_model("wrn-40-2-augmix").state_dict()["conv1.weight"].unique().tolist() == [0]


def test_the_command_lists_what_is_there_and_where_the_rest_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    (folder / "resnet-20.safetensors").touch()
    assert main(["models"]) == 0
    lines = {
        line.split()[0]: line for line in capsys.readouterr().out.splitlines()[: 1 + len(MODELS)]
    }
    assert lines.keys() == {"model", *MODELS}
    assert lines["resnet-20"].endswith(f"269,722  19  {folder / 'resnet-20.safetensors'}")
    standard = lines["wrn-28-10-standard"]
    assert "36,479,194  25  no; RobustBench, Standard: https://drive" in standard


def test_the_command_for_machines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["folder"] == str(folder)
    found = {row["name"]: (row["parameters"], row["batch_norms"]) for row in facts["models"]}
    assert found == SIZES
    there = {row["name"] for row in facts["models"] if row["on_disk"] is not None}
    assert there == {file.stem for file in EMBEDDED.glob("*.safetensors")}


@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.published.startswith(VERDICT)])
def test_the_training_command_of_a_model_makes_that_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name, data set and architecture are those of the registry."""
    taken: list[argparse.Namespace] = []
    monkeypatch.setattr(cli, "_run", taken.append)
    words = shlex.split(MODELS[name].published.split(" trained by rtta ")[1])
    main(words)
    (arguments,) = taken
    assert (arguments.name, arguments.dataset) == (name, MODELS[name].dataset)
    assert size(outline(arguments.arch, MODELS[name].classes)) == SIZES[name]
