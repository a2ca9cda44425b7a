"""All methods by name. A new method is a file in this folder and a line here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from realistic_tta.core.adapted_model import AdaptedModel
from realistic_tta.errors import OptionError, unknown

from .adacontrast import AdaContrastModel
from .adapt_bn import AdaptBNModel
from .alpha_bn import AlphaBNModel
from .cotta import CottaModel
from .eta import EtaModel
from .lame import LameModel
from .realistic import RealisticModel
from .rectified_tema import RectifiedTemaModel
from .sar import SarModel
from .source import SourceModel
from .tbn import TBNModel
from .tema import TemaModel
from .tent import TentModel

METHODS: dict[str, type[AdaptedModel]] = {
    "source": SourceModel,
    "tbn": TBNModel,
    "alpha_bn": AlphaBNModel,
    "adapt_bn": AdaptBNModel,
    "tema": TemaModel,
    "rectified_tema": RectifiedTemaModel,
    "realistic": RealisticModel,
    "lame": LameModel,
    "tent": TentModel,
    "eta": EtaModel,
    "sar": SarModel,
    "cotta": CottaModel,
    "adacontrast": AdaContrastModel,
}


def find_method(name: str) -> type[AdaptedModel]:
    """The method of this name."""
    if name not in METHODS:
        raise OptionError(unknown("method", str(name), METHODS))
    return METHODS[name]


def preset_options(method: str, preset: str | None) -> dict[str, Any]:
    """The published hyperparameters of a method for a data set.

    >>> preset_options("cotta", "cifar100_c")
    {'threshold': 0.72}
    """
    if preset is None:
        return {}
    presets = getattr(find_method(method).settings_type, "presets", None)
    if not presets:
        raise OptionError(f"{method} has no presets; leave preset out")
    if preset not in presets:
        raise OptionError(f"{method}: {unknown('preset', str(preset), presets)}")
    return dict(presets[preset])


def check_options(method: str, names: Iterable[str], known: Iterable[str] = ()) -> None:
    """Raises if the method does not take one of these options.

    known: other options that exist, to suggest the nearest one.

    >>> check_options("tbn", ["views"])
    Traceback (most recent call last):
    realistic_tta.errors.OptionError: tbn has no option "views"; cotta does
    """
    own = find_method(method).settings_type.names()
    for option in names:
        if option in own:
            continue
        takers = [name for name, each in METHODS.items() if option in each.settings_type.names()]
        if not takers:
            raise OptionError(f"{method}: {unknown('option', str(option), [*own, *known])}")
        *others, last = takers
        who = f"{', '.join(others)} and {last} do" if others else f"{last} does"
        raise OptionError(f'{method} has no option "{option}"; {who}')
