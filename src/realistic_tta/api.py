"""adapt(), load() and recalibrate(): arguments to objects."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parallel import DistributedDataParallel

from .core.adapted_model import AdaptedModel, Wrapper
from .core.settings import Settings, from_json
from .errors import ModelError, OptionError, StateError, unknown
from .layers.process_group import ProcessGroup
from .methods.registry import METHODS, check_options, find_method, preset_options
from .serving.checkpoint import Checkpoint, read_checkpoint, restore
from .serving.served_model import ServedModel
from .wrappers.compiled import Compile, Compiled
from .wrappers.flip import Flip, FlipAverage
from .wrappers.guard import Guard, GuardSettings
from .wrappers.nonfinite import NonFinite, SkipNonFinite
from .wrappers.smooth_labels import Smoothing, SmoothLabels

# From the inside to the outside; `compile` is next to the method.
WRAPPERS: dict[str, type[Wrapper]] = {
    each.name: each for each in (FlipAverage, SmoothLabels, Guard, SkipNonFinite)
}


@dataclass(frozen=True)
class WrapperOptions(Settings):
    """The options of `adapt` that every method takes."""

    flip: bool = False
    smooth_labels: bool = False
    guard: bool | GuardSettings = False
    nonfinite: Literal["raise", "skip"] = "raise"
    nonfinite_output: Literal["source", "nan"] = "source"
    compile: bool = False

    def settings(self) -> list[Settings]:
        """The settings of the wrappers that are asked for, from the inside to the outside."""
        found: list[Settings] = []
        if self.flip:
            found.append(Flip())
        if self.smooth_labels:
            found.append(Smoothing())
        if self.guard is not False:
            found.append(GuardSettings() if self.guard is True else self.guard)
        if self.nonfinite == "skip":
            found.append(NonFinite(self.nonfinite_output))
        return found


def adapt(
    model: nn.Module,
    method: str | Settings = "realistic",
    *,
    preset: str | None = None,
    process_group: Any = None,
    flip: bool = False,
    smooth_labels: bool = False,
    guard: bool | GuardSettings = False,
    nonfinite: Literal["raise", "skip"] = "raise",
    nonfinite_output: Literal["source", "nan"] = "source",
    compile: bool = False,  # noqa: A002 - torch's name
    **hyperparameters: Any,
) -> ServedModel:
    """Returns a copy of the model that adapts to the batches it predicts.

    Args:
        model: any trained model with BatchNorm layers. It is copied, not changed.
        method: the name of a method, or its hyperparameters as an object, for instance
            `RectifiedTema(passes=1)`. "rectified_tema" is the paper's method.
        preset: published hyperparameters for "cifar10_c", "cifar100_c" or "imagenet_c";
            hyperparameters passed beside it take precedence.
        process_group: a group of torch.distributed whose processes share their statistics, as if
            their images were one batch. Supported by methods that replace statistics.
        flip: average predictions over a horizontal flip where that keeps the label.
        smooth_labels: use the neighbors of an image in the stream, if labels come in runs.
        guard: compare the method with the source, without labels, and answer with the better one.
        nonfinite: "raise" an InputError for a batch with NaN or Inf, or "skip" such samples: the
            others are predicted as if they had come alone.
        nonfinite_output: the prediction for skipped samples: that of the "source", or "nan".
        compile: run each batch as one graph of torch.compile, for methods that do not train.
        hyperparameters: of the method, for instance `passes=1`. One that it does not take raises.

    Returns:
        The adapted copy, in eval mode. It is called like the model.

    Raises:
        OptionError: an unknown method or option, or a value that is not allowed.
        ModelError: the model has no layer that the method could adapt.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> adapted = adapt(model)
    >>> logits = adapted(torch.rand(16, 4))
    """
    options = WrapperOptions(flip, smooth_labels, guard, nonfinite, nonfinite_output, compile)
    settings = _method_settings(method, preset, hyperparameters)
    chosen = find_method(method) if isinstance(method, str) else _method_of(settings)
    wrappers = options.settings()
    return _build(model, chosen, settings, wrappers, compile=compile, process_group=process_group)


def load(
    path: str | Path,
    model: nn.Module,
    *,
    process_group: Any = None,
    compile: bool = False,  # noqa: A002 - torch's name
) -> ServedModel:
    """Returns the model as it was adapted when `save` wrote the file; it continues bit-identical.

    Method and options are those of the file.

    Args:
        path: a file that `adapted.save(path)` wrote.
        model: the model that was adapted, as it was trained. It is copied, not changed.
        process_group: as in `adapt`.
        compile: as in `adapt`.

    Returns:
        The adapted copy, as `adapt` returns it.

    Raises:
        StateError: the file is damaged, or of another model, method or format.

    >>> import tempfile
    >>> folder, model = tempfile.mkdtemp(), nn.BatchNorm1d(3)
    >>> adapt(model).save(f"{folder}/state")
    >>> adapted = load(f"{folder}/state", model)
    """
    plain = _unwrap(_checked_model(model))
    checkpoint = read_checkpoint(Path(path), plain)
    settings, wrappers = _stored_settings(checkpoint)
    method = find_method(checkpoint.method)
    adapted = _build(
        plain, method, settings, wrappers, compile=compile, process_group=process_group
    )
    restore(adapted, checkpoint)
    return adapted


def recalibrate(
    model: nn.Module, batches: Iterable[Any], method: str | Settings = "realistic", **options: Any
) -> nn.Module:
    """Returns a plain copy of the model, adapted to a set of unlabeled batches.

    Args:
        model: any trained model with BatchNorm layers. It is not changed.
        batches: batches of images, in the order in which to adapt to them.
        method: as in `adapt`.
        options: as in `adapt`.

    Returns:
        A model of the original class, with the adapted statistics.

    Raises:
        OptionError: an unknown method or option, or a value that is not allowed.
        ModelError: the model has no layer that the method could adapt.

    >>> plain = recalibrate(nn.BatchNorm1d(3), torch.rand(10, 16, 3))
    >>> type(plain)
    <class 'torch.nn.modules.batchnorm.BatchNorm1d'>
    """
    adapted = adapt(model, method, **options)
    for batch in batches:
        adapted(batch)
    return adapted.freeze()


def _method_settings(
    method: str | Settings, preset: str | None, hyperparameters: dict[str, Any]
) -> Settings:
    """The hyperparameters of a method as its settings object."""
    if isinstance(method, Settings):
        if preset is not None or hyperparameters:
            given = "preset" if preset is not None else next(iter(hyperparameters))
            raise OptionError(
                f"{given} is given beside {type(method).__name__}(...); put it into that object, "
                "or pass the method by name"
            )
        return method
    if not isinstance(method, str):
        raise OptionError(
            f"method is {method!r}; expected a name or a settings object, for instance "
            '"rectified_tema" or RectifiedTema(passes=1)'
        )
    check_options(method, hyperparameters, WrapperOptions.names())
    chosen = preset_options(method, preset) | hyperparameters
    return find_method(method).settings_type(**chosen)


def _method_of(settings: Settings) -> type[AdaptedModel]:
    for each in METHODS.values():
        if each.settings_type is type(settings):
            return each
    raise OptionError(f"{type(settings).__name__} is not the settings of a known method")


def _build(
    model: nn.Module,
    method: type[AdaptedModel],
    settings: Settings,
    wrappers: list[Settings],
    *,
    compile: bool,  # noqa: A002 - torch's name
    process_group: Any,
) -> ServedModel:
    if process_group is not None and compile:
        raise OptionError("compile=True is not supported with process_group")
    if process_group is not None and any(isinstance(each, GuardSettings) for each in wrappers):
        raise OptionError("guard=True is not supported with process_group: ranks could disagree")
    by_settings = {each.settings_type: each for each in WRAPPERS.values()}
    with torch.inference_mode(mode=False):  # so that gradients can flow through what is made here
        adapted = method(_copy(_checked_model(model)), settings)
        if process_group is not None:
            adapted._join(ProcessGroup(process_group))
        if compile:
            adapted = Compiled(adapted, Compile())
        for each in wrappers:
            adapted = by_settings[type(each)](adapted, each)
        return ServedModel(adapted)


def _stored_settings(checkpoint: Checkpoint) -> tuple[Settings, list[Settings]]:
    """The settings in a file, checked as if they were given by hand."""
    if checkpoint.method not in METHODS:
        raise StateError(f"{checkpoint.path}: {unknown('method', checkpoint.method, METHODS)}")
    for name in checkpoint.wrappers:
        if name not in WRAPPERS:
            raise StateError(f"{checkpoint.path}: {unknown('wrapper', name, WRAPPERS)}")
    try:
        settings = from_json(METHODS[checkpoint.method].settings_type, checkpoint.settings)
        wrappers = [
            from_json(WRAPPERS[name].settings_type, text)
            for name, text in checkpoint.wrappers.items()
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise StateError(
            f"{checkpoint.path} holds options that {checkpoint.method} does not take ({error})"
        ) from error
    return settings, wrappers


def _checked_model(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise OptionError(f"model is a {type(model).__name__}; expected a torch.nn.Module")
    for name, module in model.named_modules():
        if isinstance(module, AdaptedModel):
            where = f'its module "{name}"' if name else "the model"
            raise OptionError(
                f"{where} is adapted already, by {module._innermost.name}; "
                "pass the original, or what its freeze() returns"
            )
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():  # type: ignore[misc]
            raise ModelError(
                f'layer "{name}" ({type(module).__name__}) has no shape yet; '
                "run one batch through the model before adapting it"
            )
    return model


def _copy(model: nn.Module) -> nn.Module:
    """A copy that shares nothing with the model."""
    try:
        return copy.deepcopy(_unwrap(model))
    except Exception as error:
        raise ModelError(f"the model cannot be copied (copy.deepcopy): {error}") from error


def _unwrap(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of torch.compile and DataParallel."""
    while True:
        if isinstance(model, nn.DataParallel | DistributedDataParallel):
            inner = model.module
        else:  # torch.compile's wrapper, by its attribute: importing its class takes a second
            inner = getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return model
        model = inner
