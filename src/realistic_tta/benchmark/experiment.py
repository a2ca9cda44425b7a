"""One experiment with a stable id, and grids of experiments, also from a TOML file."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from realistic_tta.api import WrapperOptions
from realistic_tta.errors import OptionError, unknown
from realistic_tta.methods.registry import METHODS, check_options, preset_options
from realistic_tta.models.registry import find as find_model

from .datasets import find_dataset
from .manifest import short_hash
from .results import DEFAULT_SEVERITY
from .scenarios import SCENARIOS, StreamPlan

EMBEDDED = "embedded"  # the package's own model for the dataset
SWITCHES = ("guard", "flip", "smooth_labels")  # options of `adapt` that work with every method
MOST_EXPERIMENTS = 100_000  # in one grid
MOST_CHARACTERS, MOST_BRACKETS = 100_000, 1_000  # in one file


@dataclass(frozen=True)
class Experiment:
    """A method on a model, on a stream, at a batch size.

    hyperparameters: those that differ from the method's defaults; "preset" names a published set
        of them; "guard", "flip" and "smooth_labels" switch on the options of `adapt`.
    seed: of the stream's order, and of the method if it draws random numbers.
    images, order, delta, severity: see StreamPlan.
    """

    model: str
    dataset: str
    scenario: str
    method: str
    batch_size: int
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1
    images: int | None = None
    order: str = "shuffled"
    delta: float | None = None
    severity: int = DEFAULT_SEVERITY

    def __post_init__(self) -> None:
        find_model(self.model)
        find_dataset(self.dataset)
        if self.method not in METHODS:
            raise OptionError(unknown("method", self.method, METHODS))
        size = self.batch_size
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise OptionError(f"batch size is {size!r}; expected an integer of 1 or more")
        check_hyperparameters(self.method, self.hyperparameters)
        self.plan  # noqa: B018 - validates the remaining fields

    def __hash__(self) -> int:  # a dict is not hashable
        return hash(self.id)

    @property
    def plan(self) -> StreamPlan:
        """The order of the images."""
        names = (field.name for field in dataclasses.fields(StreamPlan))
        return StreamPlan(*(getattr(self, name) for name in names))

    @property
    def id(self) -> str:
        """A hash that is the same in every process and on every computer."""
        return short_hash(dataclasses.asdict(self))

    def describe(self) -> str:
        """One line for messages."""
        chosen = "".join(f", {name}={value}" for name, value in self.hyperparameters.items())
        return (
            f"{self.method}{chosen}, batch size {self.batch_size}, {self.scenario} {self.dataset}, "
            f"model {self.model}, seed {self.seed}"
        )


def check_hyperparameters(method: str, hyperparameters: Mapping[str, Any]) -> None:
    """Raises OptionError for a name or a value that `adapt` would refuse."""
    switches = {name: hyperparameters[name] for name in SWITCHES if name in hyperparameters}
    own = {
        name: value
        for name, value in hyperparameters.items()
        if name != "preset" and name not in SWITCHES
    }
    WrapperOptions(**switches)
    check_options(method, own, SWITCHES)
    preset = preset_options(method, hyperparameters.get("preset"))
    METHODS[method].settings_type(**preset | own)


AXES: dict[str, Any] = {  # the axes of a grid, with their defaults
    "datasets": "cifar10-c",
    "models": EMBEDDED,
    "scenarios": "continual",
    "methods": "all",
    "batch_sizes": [200, 64, 16, 4, 2, 1],  # the paper's
    "seeds": 1,
    "images": None,
    "orders": "shuffled",
    "deltas": None,
    "severities": DEFAULT_SEVERITY,
}
SINGULAR = {"images": "images", "severities": "severity"}
NAMES = ("datasets", "models", "scenarios", "methods", "orders")


def grid(
    axes: Mapping[str, Any], hyperparameters: Mapping[str, Any] | None = None
) -> list[Experiment]:
    """Every combination of the axes, in the order of AXES; models run on their own dataset only.

    axes: a value or a list of values each. A method may carry switches, such as tent+guard.
    hyperparameters: by method.

    >>> few = grid({"methods": ["tbn", "tema"], "batch_sizes": [4, 1]})
    >>> [(each.method, each.batch_size) for each in few]
    [('tbn', 4), ('tbn', 1), ('tema', 4), ('tema', 1)]
    """
    hyperparameters = hyperparameters or {}
    for name in axes:
        if name not in AXES:
            raise OptionError(unknown("axis", name, AXES))
    for method in hyperparameters:
        if method not in METHODS:
            raise OptionError(f"hyperparameters: {unknown('method', method, METHODS)}")
    values = [_values(name, axes.get(name, default)) for name, default in AXES.items()]
    count = math.prod(map(len, values))
    if count > MOST_EXPERIMENTS:
        raise OptionError(f"{count:,} experiments in one grid; expected at most 100,000")
    fields = [SINGULAR.get(name, name.removesuffix("s")) for name in AXES]
    chosen = [dict(zip(fields, each, strict=True)) for each in itertools.product(*values)]
    chosen = [each for each in chosen if _fits(each["model"], each["dataset"])]
    if not chosen:
        raise OptionError("none of the models was trained for any of the datasets")
    return list(dict.fromkeys(_experiment(each, hyperparameters) for each in chosen))


def _fits(model: str, dataset: str) -> bool:
    """Whether the model was trained for the classes of the dataset."""
    return model == EMBEDDED or dataset.startswith(f"{find_model(model).dataset}-c")


def _values(name: str, given: Any) -> list[Any]:
    values = list(given) if isinstance(given, list | tuple) else [given]
    if name == "methods" and values == ["all"]:
        return list(METHODS)
    if not values:
        raise OptionError(f"{name} is an empty list; expected at least one value")
    for value in values:
        if name in NAMES and not isinstance(value, str):
            raise OptionError(f"{name} is {value!r:.60}; expected a name, or a list of names")
    return values


def _experiment(chosen: dict[str, Any], hyperparameters: Mapping[str, Any]) -> Experiment:
    if chosen["model"] == EMBEDDED:
        embedded = find_dataset(chosen["dataset"]).embedded
        if embedded is None:
            raise OptionError(f"the package has no model for {chosen['dataset']}; name another")
        chosen["model"] = embedded
    scenario = SCENARIOS.get(chosen["scenario"])
    if scenario and not scenario.correlated:
        chosen["delta"] = None  # applies to the correlated scenarios of a grid only
    if scenario and not scenario.takes_severity:
        chosen["severity"] = DEFAULT_SEVERITY
    method, *switches = chosen.pop("method").split("+")
    own = {**hyperparameters.get(method, {}), **dict.fromkeys(switches, True)}
    return Experiment(method=method, hyperparameters=own, **chosen)


class Grid(NamedTuple):
    """The arguments of `grid`. where: the file, and the number of the grid if there are several."""

    axes: dict[str, Any]
    hyperparameters: dict[str, Any]
    where: str = ""

    def experiments(self) -> list[Experiment]:
        """The experiments; an error says where the grid stands."""
        try:
            return grid(self.axes, self.hyperparameters)
        except OptionError as error:
            raise OptionError(f"{self.where}: {error}" if self.where else str(error)) from error


def read_grids(path: Path) -> list[Grid]:
    """The grids of a TOML file: one, or each table of [[grids]].

    What stands outside of the tables is the default of every grid.
    """
    found = _read_toml(path)
    tables = found.pop("grids", None)
    if tables is None:
        return [_grid(found, str(path))]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise OptionError(f"{path}: grids is {tables!r:.60}; expected tables, each as [[grids]]")
    shared = _grid(found, str(path))
    own = [_grid(table, f"{path}, grid {place}") for place, table in enumerate(tables, start=1)]
    return [
        Grid(shared.axes | each.axes, shared.hyperparameters | each.hyperparameters, each.where)
        for each in own
    ]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise OptionError(f"{path} cannot be read ({error}); expected a grid in TOML") from error
    if len(text) > MOST_CHARACTERS or text.count("[") + text.count("{") > MOST_BRACKETS:
        raise OptionError(f"{path}: {len(text):,} characters are too many for a grid")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{path} is not a TOML file: {error}") from error


def _grid(found: dict[str, Any], where: str) -> Grid:
    hyperparameters = found.pop("hyperparameters", {})
    tables = hyperparameters.values() if isinstance(hyperparameters, dict) else [None]
    if not all(isinstance(table, dict) for table in tables):
        raise OptionError(
            f"{where}: hyperparameters is {hyperparameters!r:.60}; expected one table per method, "
            "such as [hyperparameters.tent]"
        )
    for name in found:
        if name not in AXES:
            raise OptionError(f"{where}: {unknown('axis', name, AXES)}")
    return Grid(found, hyperparameters, where)
