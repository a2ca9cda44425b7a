from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from subjects import residual

from realistic_tta import METHODS
from realistic_tta.benchmark.experiment import Experiment, grid, read_grid
from realistic_tta.benchmark.runner import adapt_for
from realistic_tta.errors import SettingError
from realistic_tta.methods.eta import EtaSettings

BASE: dict[str, Any] = {
    "network": "cifar10",
    "data": "cifar10-c",
    "setting": "continual",
    "method": "tema",
    "batch_size": 4,
}


def test_the_id_is_the_hash_of_canonical_json() -> None:
    """By another route, so that ids written today are found tomorrow."""
    text = (
        '{"batch_size":4,"data":"cifar10-c","delta":null,"images":null,"method":"tema",'
        '"network":"cifar10","order":"shuffled","seed":1,"setting":"continual",'
        '"settings":{"momentum":0.1}}'
    )
    experiment = Experiment(**BASE, settings={"momentum": 0.1})
    assert experiment.id == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert json.loads(text) == dataclasses.asdict(experiment)


def test_every_field_changes_the_id() -> None:
    other: dict[str, Any] = {
        "network": "cifar100",
        "data": "cifar100-c",
        "setting": "correlated",
        "method": "rectified_tema",
        "batch_size": 2,
        "settings": {"start": "source"},
        "seed": 2,
        "images": 10,
        "order": "file",
    }
    ids = {Experiment(**BASE | {name: value}).id for name, value in other.items()}
    ids.add(Experiment(**BASE).id)
    ids.add(Experiment(**BASE | {"setting": "correlated", "delta": 0.1}).id)
    assert len(ids) == len(other) + 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"method": "tmea"}, 'unknown method "tmea"; did you mean "tema"?'),
        ({"setting": "continaul"}, 'unknown setting "continaul"; did you mean "continual"?'),
        ({"data": "cifar10c"}, 'unknown data set "cifar10c"; did you mean "cifar10-c"?'),
        ({"network": "cifar"}, 'unknown network "cifar"; did you mean "cifar10'),
        ({"batch_size": 0}, "batch size is 0; expected a whole number of 1 or more"),
        ({"batch_size": 1.5}, "batch size is 1.5"),
        ({"settings": {"momentun": 1}}, 'tema: unknown setting "momentun"; did you mean "mom'),
        ({"settings": {"momentum": 2}}, "momentum"),
        ({"settings": {"guard": 1}}, "guard is 1; expected true or false"),
    ],
)
def test_experiments_that_cannot_be_are_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingError) as error:
        Experiment(**BASE | change)
    assert told in str(error.value)


def test_a_grid_is_the_product() -> None:
    found = grid(
        {"method": "all", "batch_size": [4, 1], "seed": [1, 2, 3], "setting": ["mixed", "gradual"]}
    )
    assert len(found) == len(METHODS) * 2 * 3 * 2
    assert len({each.id for each in found}) == len(found)
    assert {each.network for each in found} == {"cifar10"}


def test_switches_stand_behind_a_method() -> None:
    axes = {"method": ["tema", "tema+robust+guard"], "batch_size": 4}
    found = grid(axes, {"tema": {"start": "source"}})
    assert [(each.method, dict(each.settings)) for each in found] == [
        ("tema", {"start": "source"}),
        ("tema", {"start": "source", "robust": True, "guard": True}),
    ]
    with pytest.raises(SettingError, match='tema: unknown setting "gard"; did you mean "guard"'):
        grid({"method": "tema+gard"})


def test_delta_reaches_the_correlated_settings_alone() -> None:
    found = grid({"setting": ["continual", "correlated"], "delta": 0.1, "method": "tbn"})
    assert {(each.setting, each.delta) for each in found} == {
        ("continual", None),
        ("correlated", 0.1),
    }


TOML = """
data = "cifar100-c"
method = ["tema", "tbn"]
batch_size = [16, 1]
images = 50
[settings.tema]
momentum = 0.05
"""


def test_a_grid_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(TOML)
    found = grid(*read_grid(tmp_path / "grid.toml"))
    assert [(each.method, each.batch_size, dict(each.settings)) for each in found] == [
        ("tema", 16, {"momentum": 0.05}),
        ("tema", 1, {"momentum": 0.05}),
        ("tbn", 16, {}),
        ("tbn", 1, {}),
    ]
    assert {(each.data, each.network, each.images) for each in found} == {
        ("cifar100-c", "cifar100", 50)
    }


YAML = """
data: cifar100-c
method: [tema, tbn]
batch_size: [16, 1]
images: 50
settings:
  tema:
    momentum: 0.05
"""


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_yaml_and_toml_say_the_same(tmp_path: Path, ending: str) -> None:
    (tmp_path / "grid.toml").write_text(TOML)
    (tmp_path / f"grid.{ending}").write_text(YAML)
    assert read_grid(tmp_path / f"grid.{ending}") == read_grid(tmp_path / "grid.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("methods: 3", 'unknown axis "methods"; did you mean "method"?'),
        ("3: 3", 'unknown axis "3"'),
        ("a: [", "grid.yaml: no YAML"),
        ("settings: 1", "settings are 1; expected names and values under each method's name"),
        ("settings: {tema: 0.1}", "expected names and values under each method's name"),
        ("- tema", r"grid.yaml holds \['tema'\]; expected axes such as batch_size: \[4, 1\]"),
        ("", "grid.yaml holds None; expected axes"),
        ("!!python/object/apply:os.getcwd []", "grid.yaml: no YAML"),
    ],
)
def test_yaml_that_holds_no_grid_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(SettingError, match=told):
        read_grid(tmp_path / "grid.yaml")


def test_without_pyyaml_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "grid.yaml").write_text(YAML)
    with pytest.raises(SettingError, match=r"needs the package pyyaml; pip install"):
        read_grid(tmp_path / "grid.yaml")


@pytest.mark.parametrize("ending", ["toml", "yaml"])
def test_a_grid_that_cannot_be_read_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"grid.{ending}"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match=f"grid.{ending}: no grid in TOML or YAML can be read"):
        read_grid(path)


def test_a_preset_is_a_setting_of_an_experiment() -> None:
    chosen = Experiment(**BASE | {"method": "eta", "settings": {"preset": "imagenet_c"}})
    adapted = adapt_for(chosen, residual())
    assert isinstance(adapted.settings, EtaSettings)
    assert adapted.settings.margin == 0.05
    with pytest.raises(SettingError, match='did you mean "imagenet_c"'):
        Experiment(**BASE | {"method": "eta", "settings": {"preset": "imagenet"}})
    with pytest.raises(SettingError, match="tema has no presets"):
        Experiment(**BASE | {"settings": {"preset": "imagenet_c"}})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("methods = 3", 'unknown axis "methods"; did you mean "method"?'),
        ("a = ", "no TOML"),
        ("settings = 1", "settings are 1; expected names and values under each method's name"),
        ("method = []", "method is an empty list"),
        ("[settings.tmea]\nmomentum = 1", 'did you mean "tema"'),
        ("batch_size = 0", "batch size is 0"),
        ('data = "imagenet-c"', "no network for imagenet-c is embedded"),
    ],
)
def test_files_that_hold_no_grid_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(SettingError, match=told):
        grid(*read_grid(tmp_path / "grid.toml"))
    with pytest.raises(SettingError, match="no such file"):
        read_grid(tmp_path / "other.toml")
