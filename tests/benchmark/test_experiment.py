from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from realistic_tta import METHODS
from realistic_tta.benchmark.experiment import Experiment, grid, read_grids
from realistic_tta.errors import OptionError

BASE: dict[str, Any] = {
    "model": "cifar10",
    "dataset": "cifar10-c",
    "scenario": "continual",
    "method": "tema",
    "batch_size": 4,
}


def test_the_id_is_the_hash_of_canonical_json() -> None:
    """By another route, so that ids written today are found tomorrow."""
    text = (
        '{"batch_size":4,"dataset":"cifar10-c","delta":null,"hyperparameters":{"momentum":0.1},'
        '"images":null,"method":"tema","model":"cifar10","order":"shuffled","scenario":"continual",'
        '"seed":1,"severity":5}'
    )
    experiment = Experiment(**BASE, hyperparameters={"momentum": 0.1})
    assert experiment.id == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert json.loads(text) == dataclasses.asdict(experiment)


def test_every_field_changes_the_id() -> None:
    other: dict[str, Any] = {
        "model": "cifar100",
        "dataset": "cifar100-c",
        "scenario": "correlated",
        "method": "rectified_tema",
        "batch_size": 2,
        "hyperparameters": {"start": "source"},
        "seed": 2,
        "images": 10,
        "order": "file",
        "severity": 1,
    }
    ids = {Experiment(**BASE | {name: value}).id for name, value in other.items()}
    ids.add(Experiment(**BASE).id)
    ids.add(Experiment(**BASE | {"scenario": "correlated", "delta": 0.1}).id)
    assert len(ids) == len(other) + 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"method": "tmea"}, 'unknown method "tmea"; did you mean "tema"?'),
        ({"scenario": "continaul"}, 'unknown scenario "continaul"; did you mean "continual"?'),
        ({"dataset": "cifar10c"}, 'unknown dataset "cifar10c"; did you mean "cifar10-c"?'),
        ({"model": "cifar"}, 'did you mean "cifar10'),
        ({"batch_size": 0}, "batch size is 0; expected an integer of 1 or more"),
        ({"batch_size": 1.5}, "batch size is 1.5"),
        (
            {"hyperparameters": {"momentun": 1}},
            'tema: unknown option "momentun"; did you mean "mom',
        ),
        ({"hyperparameters": {"momentum": 2}}, "momentum"),
        ({"hyperparameters": {"guard": 1}}, "guard is 1; expected True or False"),
    ],
)
def test_experiments_that_cannot_be_are_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError) as error:
        Experiment(**BASE | change)
    assert told in str(error.value)


def test_a_grid_is_the_product() -> None:
    found = grid(
        {
            "methods": "all",
            "batch_sizes": [4, 1],
            "seeds": [1, 2, 3],
            "scenarios": ["mixed", "gradual"],
        }
    )
    assert len(found) == len(METHODS) * 2 * 3 * 2
    assert len({each.id for each in found}) == len(found)
    assert {each.model for each in found} == {"cifar10"}


def test_switches_stand_behind_a_method() -> None:
    axes = {"methods": ["tema", "tema+guard"], "batch_sizes": 4}
    found = grid(axes, {"tema": {"start": "source"}})
    assert [(each.method, dict(each.hyperparameters)) for each in found] == [
        ("tema", {"start": "source"}),
        ("tema", {"start": "source", "guard": True}),
    ]
    with pytest.raises(OptionError, match='tema: unknown option "gard"; did you mean "guard"'):
        grid({"methods": "tema+gard"})


def test_delta_reaches_the_correlated_settings_alone() -> None:
    found = grid({"scenarios": ["continual", "correlated"], "deltas": 0.1, "methods": "tbn"})
    assert {(each.scenario, each.delta) for each in found} == {
        ("continual", None),
        ("correlated", 0.1),
    }


def test_severity_reaches_the_scenarios_of_one_severity_alone() -> None:
    """The others are run once, not once per severity."""
    axes = {"scenarios": ["mixed", "gradual", "clean"], "severities": [1, 5], "methods": "tbn"}
    found = grid(axes | {"batch_sizes": 4})
    assert [(each.scenario, each.severity) for each in found] == [
        ("mixed", 1),
        ("mixed", 5),
        ("gradual", 5),
        ("clean", 5),
    ]
    assert {part.severity for part in found[0].plan.parts} == {1}
    with pytest.raises(OptionError, match="clean takes no severity"):
        Experiment(**BASE | {"scenario": "clean", "severity": 1})
    with pytest.raises(OptionError, match="severity is 6; expected 1, 2, 3, 4 or 5"):
        grid({"severities": 6})


TOML = """
datasets = "cifar100-c"
methods = ["tema", "tbn"]
batch_sizes = [16, 1]
images = 50
[hyperparameters.tema]
momentum = 0.05
"""


def test_a_grid_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(TOML)
    (read,) = read_grids(tmp_path / "grid.toml")
    found = read.experiments()
    assert [(each.method, each.batch_size, dict(each.hyperparameters)) for each in found] == [
        ("tema", 16, {"momentum": 0.05}),
        ("tema", 1, {"momentum": 0.05}),
        ("tbn", 16, {}),
        ("tbn", 1, {}),
    ]
    assert {(each.dataset, each.model, each.images) for each in found} == {
        ("cifar100-c", "cifar100", 50)
    }


GRIDS = """
batch_sizes = 4
[hyperparameters.tema]
momentum = 0.05
[[grids]]
methods = "tema"
[[grids]]
methods = ["tbn", "tema"]
batch_sizes = 1
[grids.hyperparameters.tema]
start = "source"
"""


def test_a_file_can_hold_several_grids_with_shared_defaults(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRIDS)
    found = [each.experiments() for each in read_grids(tmp_path / "grid.toml")]
    assert [[(e.method, e.batch_size, dict(e.hyperparameters)) for e in few] for few in found] == [
        [("tema", 4, {"momentum": 0.05})],
        [("tbn", 1, {}), ("tema", 1, {"start": "source"})],
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("batch_sizes = 1", "batch_size = 1", r"grid.toml, grid 2: unknown axis \"batch_size\""),
        ('"tbn"', '"tnb"', r"grid.toml, grid 2: unknown method \"tnb\""),
        ("[[grids]]", "[grids]", "is not a TOML file"),
        ("batch_sizes = 4", "grids = 4 #", "grids is 4; expected tables"),
    ],
)
def test_a_wrong_grid_is_named_by_its_number(old: str, new: str, told: str, tmp_path: Path) -> None:
    text = GRIDS if "grids = " not in new else "batch_sizes = 4"
    (tmp_path / "grid.toml").write_text(text.replace(old, new))
    with pytest.raises(OptionError, match=told):
        [each.experiments() for each in read_grids(tmp_path / "grid.toml")]


def test_a_grid_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match=r"grid.toml cannot be read"):
        read_grids(path)


def test_a_preset_is_a_hyperparameter_of_an_experiment() -> None:
    Experiment(**BASE | {"method": "eta", "hyperparameters": {"preset": "imagenet_c"}})
    with pytest.raises(OptionError, match='did you mean "imagenet_c"'):
        Experiment(**BASE | {"method": "eta", "hyperparameters": {"preset": "imagenet"}})
    with pytest.raises(OptionError, match="tema has no presets"):
        Experiment(**BASE | {"hyperparameters": {"preset": "imagenet_c"}})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("method = 3", 'unknown axis "method"; did you mean "methods"?'),
        ("a = ", "is not a TOML file"),
        (
            "hyperparameters = 1",
            "hyperparameters is 1; expected one table per method",
        ),
        ("methods = []", "methods is an empty list"),
        ("[hyperparameters.tmea]\nmomentum = 1", 'did you mean "tema"'),
        ("batch_sizes = 0", "batch size is 0"),
        ('datasets = "imagenet-c"', "the package has no model for imagenet-c"),
    ],
)
def test_files_that_hold_no_grid_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(OptionError, match=told):
        [each.experiments() for each in read_grids(tmp_path / "grid.toml")]
    with pytest.raises(OptionError, match="No such file"):
        read_grids(tmp_path / "other.toml")


def test_models_run_on_the_dataset_that_they_were_trained_for() -> None:
    axes = {"datasets": ["cifar10-c", "cifar100-c"], "models": ["cifar10", "cifar100"]}
    found = grid(axes | {"methods": "tbn", "batch_sizes": 1})
    assert [(each.dataset, each.model) for each in found] == [
        ("cifar10-c", "cifar10"),
        ("cifar100-c", "cifar100"),
    ]
    with pytest.raises(OptionError, match="none of the models was trained for any of the datasets"):
        grid({"datasets": "cifar100-c", "models": "cifar10"})
