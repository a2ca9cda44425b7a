"""One experiment: what is run, with an id that stays the same; and grids of them.

runner.py evaluates one; engines.py runs many.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from realistic_tta.benchmark.manifest import short_hash
from realistic_tta.benchmark.scenarios import SETTINGS, StreamPlan
from realistic_tta.errors import SettingError, unknown
from realistic_tta.methods.catalogue import METHODS, preset_settings
from realistic_tta.models.registry import find as find_network

from .data import find_data

EMBEDDED = "embedded"  # the package's own network for the data set
OF_ADAPT = ("preset", "guard")  # what stands among the settings, and is no method's own


@dataclass(frozen=True)
class Experiment:
    """A method on a network, on a stream, at a batch size.

    settings: the method's own, where they differ from its defaults; "preset" names a published set
        of them, and "guard" lets the network as trained answer where it is better, as in `adapt`.
    seed: of the stream's order, and of the method's draws where it has any.
    images, order, delta: as StreamPlan says.
    """

    network: str
    data: str
    setting: str
    method: str
    batch_size: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1
    images: int | None = None
    order: str = "shuffled"
    delta: float | None = None

    def __post_init__(self) -> None:
        find_network(self.network)
        find_data(self.data)
        if self.method not in METHODS:
            raise SettingError(unknown("method", self.method, METHODS))
        size = self.batch_size
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise SettingError(f"batch size is {size!r}; expected a whole number of 1 or more")
        _check_settings(self.method, self.settings)
        self.plan  # noqa: B018 - checks the rest

    def __hash__(self) -> int:  # settings are a dict, which has none
        return hash(self.id)

    @property
    def plan(self) -> StreamPlan:
        """The order of the images."""
        return StreamPlan(self.setting, self.order, self.seed, self.images, self.delta)

    @property
    def id(self) -> str:
        """The same for the same experiment, in every process and on every machine."""
        return short_hash(dataclasses.asdict(self))

    def describe(self) -> str:
        """In a few words, for people."""
        chosen = "".join(f", {name}={value}" for name, value in self.settings.items())
        return (
            f"{self.method}{chosen}, batch size {self.batch_size}, {self.setting} {self.data}, "
            f"network {self.network}, seed {self.seed}"
        )


def _check_settings(method: str, settings: Mapping[str, Any]) -> None:
    settings_type = METHODS[method].settings_type
    taken = {each.name for each in dataclasses.fields(settings_type)}
    given = {name: value for name, value in settings.items() if name not in OF_ADAPT}
    for name in given:
        if name not in taken:
            raise SettingError(f"{method}: {unknown('setting', name, {*taken, *OF_ADAPT})}")
    if not isinstance(settings.get("guard", False), bool):
        raise SettingError(f"{method}: guard is {settings['guard']!r}; expected true or false")
    chosen = preset_settings(method, settings.get("preset"))
    settings_type(**chosen | given)  # raises for a value that cannot be


MOST = 100_000  # experiments in one grid
LONGEST, BRACKETS = 100_000, 1_000  # of its file: YAML's reader takes hours for lists in lists

AXES: dict[str, Any] = {  # what a grid may name, and what it is if not named
    "data": "cifar10-c",
    "network": EMBEDDED,
    "setting": "continual",
    "method": "all",
    "batch_size": [200, 64, 16, 4, 2, 1],  # the paper's
    "seed": 1,
    "images": None,
    "order": "shuffled",
    "delta": None,
}


def grid(axes: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> list[Experiment]:
    """Every combination, in the order of AXES.

    axes: a value or a list of values each; a method may have switches behind it, as in tent+guard
        or tema+robust. settings: by method.

    >>> few = grid({"method": ["tbn", "tema"], "batch_size": [4, 1]})
    >>> [(each.method, each.batch_size) for each in few]
    [('tbn', 4), ('tbn', 1), ('tema', 4), ('tema', 1)]
    """
    for name in axes:
        if name not in AXES:
            raise SettingError(unknown("axis", name, AXES))
    settings = settings or {}
    for method in settings:
        if method not in METHODS:
            raise SettingError(f"settings: {unknown('method', method, METHODS)}")
    values = [_values(name, axes.get(name, default)) for name, default in AXES.items()]
    count = math.prod(map(len, values))
    if count > MOST:
        raise SettingError(f"{count:,} experiments in one grid; expected at most {MOST:,}")
    found = [dict(zip(AXES, each, strict=True)) for each in itertools.product(*values)]
    return [_experiment(each, settings) for each in found]


def _values(name: str, given: Any) -> list[Any]:
    if name == "method" and given == "all":
        return list(METHODS)
    values = list(given) if isinstance(given, list | tuple) else [given]
    if not values:
        raise SettingError(f"{name} is an empty list; expected at least one value")
    for value in values:
        if name in _NAMED and not isinstance(value, str):
            raise SettingError(f"{name} is {value!r:.60}; expected a name, or a list of names")
    return values


_NAMED = ("data", "network", "setting", "method", "order")


def _experiment(chosen: dict[str, Any], settings: Mapping[str, Any]) -> Experiment:
    if chosen["network"] == EMBEDDED:
        embedded = find_data(chosen["data"]).embedded
        if embedded is None:
            raise SettingError(f"no network for {chosen['data']} is embedded; name another")
        chosen["network"] = embedded
    if chosen["setting"] in SETTINGS and not SETTINGS[chosen["setting"]].correlated:
        chosen["delta"] = None  # one axis for all settings of a grid
    method, *switches = chosen.pop("method").split("+")  # tent+guard
    own = {**settings.get(method, {}), **dict.fromkeys(switches, True)}
    return Experiment(method=method, settings=own, **chosen)


def read_grid(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The axes and the methods' settings in a TOML or YAML file, for `grid`."""
    try:
        text = path.read_text()
    except FileNotFoundError as error:
        raise SettingError(f"{path}: no such file; expected a grid in TOML or YAML") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: no grid in TOML or YAML can be read: {error}") from error
    if len(text) > LONGEST or text.count("[") + text.count("{") > BRACKETS:
        raise SettingError(
            f"{path}: {len(text):,} characters are no grid; expected at most {LONGEST:,}, "
            f"and {BRACKETS:,} lists"
        )
    found = _yaml(text, path) if path.suffix in (".yaml", ".yml") else _toml(text, path)
    settings = found.pop("settings", {})
    if not isinstance(settings, dict) or not all(isinstance(v, dict) for v in settings.values()):
        raise SettingError(
            f"{path}: settings are {settings!r}; expected names and values under each method's name"
        )
    for name in found:
        if name not in AXES:
            raise SettingError(f"{path}: {unknown('axis', str(name), AXES)}")
    return found, settings


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path}: no TOML: {error}") from error


def _yaml(text: str, path: Path) -> dict[str, Any]:
    try:
        import yaml  # noqa: PLC0415 - only these files need it
    except ImportError as error:
        raise SettingError(
            f"{path} needs the package pyyaml; pip install 'realistic-tta[bench]' brings it"
        ) from error
    try:
        aliases = [each for each in yaml.parse(text) if isinstance(each, yaml.AliasEvent)]
        found = None if aliases else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of no calendar, too
        raise SettingError(f"{path}: no YAML: {error}") from error
    if aliases:  # a few lines of them can stand for a list without end
        raise SettingError(f"{path}: *{aliases[0].anchor} stands for another part; write it out")
    if not isinstance(found, dict):
        raise SettingError(f"{path} holds {found!r:.60}; expected axes such as batch_size: [4, 1]")
    return found
