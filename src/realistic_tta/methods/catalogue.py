"""All methods by name, and the one call that applies one to a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import Any, Literal

import torch
from torch import nn

from realistic_tta.errors import SettingError, unknown
from realistic_tta.layers.replicas import Replicas

from .adacontrast import AdaContrast
from .bad_samples import Exclusion
from .base import AdaptedModel
from .batch_norm import TBN, AdaptBN, AlphaBN, Tema
from .compiled import CompiledPredict
from .cotta import Cotta
from .domains import DomainsMethod
from .eta import Eta
from .guard import Guard
from .lame import Lame
from .momentum_settings import count_classes
from .realistic import Realistic
from .rectified_tema import RectifiedTema
from .sar import Sar
from .source import Source
from .tent import Tent

METHODS: dict[str, type[AdaptedModel]] = {
    "source": Source,
    "tbn": TBN,
    "alpha_bn": AlphaBN,
    "adapt_bn": AdaptBN,
    "tema": Tema,
    "rectified_tema": RectifiedTema,
    "realistic": Realistic,
    "domains": DomainsMethod,
    "lame": Lame,
    "tent": Tent,
    "eta": Eta,
    "sar": Sar,
    "cotta": Cotta,
    "adacontrast": AdaContrast,
}
DEFAULT = "realistic"  # of `adapt`; docs/beyond.md says why


def adapt(
    network: nn.Module,
    method: str = DEFAULT,
    *,
    classes: int | None = None,
    source_batch_size: int = 128,
    momentum: float | Literal["auto"] = "auto",
    preset: str | None = None,
    compile: bool = False,  # noqa: A002 - torch's own word
    sync: Literal["torch.distributed"] | None = None,
    on_bad_input: Literal["exclude", "raise"] = "exclude",
    bad_output: Literal["source", "nan"] = "source",
    guard: bool = False,
    **settings: Any,
) -> AdaptedModel:
    """A network that adapts to what it is shown, used like the one it is made from.

    Args:
        network: any trained network with BatchNorm layers. It is copied, not changed.
        method: a name from the catalogue. "realistic", which is used if none is given, is this
            library's own; "rectified_tema" is the paper's.
        classes: how many classes it tells apart; by default the outputs of its last Linear layer.
        source_batch_size: batch size of its training (128 on CIFAR, 256 on ImageNet).
        momentum: weight of the current batch in the moving average of tema and rectified_tema;
            "auto" follows from the class diversity of each batch's size (paper, Eq. 5).
        preset: published settings of the method for "cifar10_c", "cifar100_c" or "imagenet_c";
            those given beside it go first.
        compile: run each batch as one graph of torch.compile: as cheap as plain inference. For the
            methods that do not train; without a C++ compiler it warns and runs as it is.
        sync: "torch.distributed" merges the statistics of all processes of the group, batch by
            batch, as if their images came as one batch to each. Methods that train refuse it.
        on_bad_input: "exclude" leaves samples with NaN or Inf, and those that overflow inside the
            network, out of everything; the others are predicted as if they had come alone.
            "raise" raises an InputError and changes nothing.
        bad_output: what a sample left out is answered with: "source", the network as trained on
            what is finite of it, or "nan".
        guard: compare the method, without labels, with the network as trained; let whichever is
            better answer, and take a lost method back to its last good state. Off, every method is
            as published.
        settings: what else the method takes, for instance robust=True, or passes=1 and
            start="source" for rectified_tema.

    >>> import torch
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> adapted = adapt(network)
    >>> logits = adapted(torch.rand(16, 4))
    """
    chosen = _chosen(network, method)
    if compile and not chosen.compiles:
        able = ", ".join(name for name, each in METHODS.items() if each.compiles)
        raise SettingError(f"{method} cannot be compiled; these methods can: {able}")
    settings = preset_settings(method, preset) | settings
    taken = _taken(chosen)
    for name in settings:
        if name not in taken:
            raise SettingError(_not_taken(method, name))
    settings |= _diversity_settings(network, taken, classes, source_batch_size, momentum)
    if momentum != "auto" and "momentum" not in taken:
        raise SettingError(f"{method} takes no momentum; tema and rectified_tema do")
    with torch.inference_mode(mode=False):  # what it makes may have to carry gradients
        adapted = chosen(network, chosen.settings_type(**settings))
    equipped(adapted, compile=compile, sync=sync)
    return guarded(tolerant(adapted, on_bad_input, bad_output), guard=guard)


def equipped(
    adapted: AdaptedModel,
    *,
    compile: bool,  # noqa: A002 - torch's own word
    sync: str | None,
) -> AdaptedModel:
    """The same, to be compiled, or merged with other processes, if asked for."""
    if sync not in (None, "torch.distributed"):
        raise SettingError(f'sync is {sync!r}; expected "torch.distributed" or None')
    if compile and sync:
        raise SettingError("compile=True and sync cannot go together: a graph waits for nobody")
    if compile:
        adapted.compiled = CompiledPredict()
    if sync is not None:
        adapted.share_with(Replicas())
    return adapted


def tolerant(adapted: AdaptedModel, on_bad_input: str, bad_output: str) -> AdaptedModel:
    """The same; what it does with samples that hold NaN or Inf."""
    if on_bad_input not in ("exclude", "raise"):
        raise SettingError(f'on_bad_input is {on_bad_input!r}; expected "exclude" or "raise"')
    if bad_output not in ("source", "nan"):
        raise SettingError(f'bad_output is {bad_output!r}; expected "source" or "nan"')
    adapted.exclusion = Exclusion(bad_output) if on_bad_input == "exclude" else None  # type: ignore[arg-type]
    return adapted


def guarded(adapted: AdaptedModel, *, guard: bool) -> AdaptedModel:
    """The same, watched if asked for."""
    if guard and adapted.replicas is not None:
        raise SettingError("guard=True and sync cannot go together: ranks would judge differently")
    adapted.guard = Guard() if guard else None
    return adapted


def _chosen(network: nn.Module, method: str) -> type[AdaptedModel]:
    """The method of this name, for something that can be adapted."""
    if not isinstance(network, nn.Module):
        raise SettingError(f"network is a {type(network).__name__}; expected a torch.nn.Module")
    if isinstance(network, AdaptedModel):
        raise SettingError(
            f"the network is adapted already, by {network.name}; "
            "pass the original, or what its freeze() returns"
        )
    if method not in METHODS:
        raise SettingError(unknown("method", str(method), METHODS))
    return METHODS[method]


def _taken(method: type[AdaptedModel]) -> set[str]:
    """Names of the settings that the method takes."""
    return {field.name for field in dataclasses.fields(method.settings_type)}


def _not_taken(method: str, setting: str) -> str:
    """The answer to a setting that the method has not: who has it, or the nearest name.

    >>> _not_taken("tbn", "views")
    'tbn has no setting "views"; cotta takes it: adapt(network, "cotta", views=...)'
    """
    takers = [name for name, each in METHODS.items() if setting in _taken(each)]
    if not takers:
        return f"{method}: {unknown('setting', setting, _taken(METHODS[method]))}"
    *others, last = takers
    who = f"{', '.join(others)} and {last} take it" if others else f"{last} takes it"
    call = f'adapt(network, "{takers[0]}", {setting}=...)'
    return f'{method} has no setting "{setting}"; {who}: {call}'


def _diversity_settings(
    network: nn.Module,
    taken: Container[str],
    classes: int | None,
    source_batch_size: int,
    momentum: float | Literal["auto"],
) -> dict[str, Any]:
    """Those of `adapt`'s own arguments that the method takes, the classes counted if need be."""
    if classes is None and momentum == "auto" and "source_batch_size" in taken:
        classes = count_classes(network)
    given = {"classes": classes, "source_batch_size": source_batch_size, "momentum": momentum}
    return {name: value for name, value in given.items() if name in taken}


def preset_settings(method: str, name: str | None) -> dict[str, Any]:
    """The settings that the method publishes under this name.

    >>> preset_settings("cotta", "cifar100_c")
    {'threshold': 0.72}
    """
    if name is None:
        return {}
    presets = getattr(METHODS[method].settings_type, "presets", None)
    if not presets:
        raise SettingError(f"{method} has no presets; leave preset out")
    if name not in presets:
        raise SettingError(f"{method}: {unknown('preset', str(name), presets)}")
    return dict(presets[name])
