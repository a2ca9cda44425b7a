"""Loads published weights into a network, or says why they do not fit and which network they would.

Takes torch files (RobustBench's, torchvision's), our own .safetensors, and the folder of the npm
package with the Keras ResNet-50. Nothing that a file contains is ever run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from realistic_tta.errors import ModelError

from .keras_weights import read_keras_resnet50
from .registry import NETWORKS, build, find, on_disk, outline
from .resnet import Normalize, ResNet50V1

PREFIXES = ("module.", "model.")  # left by DataParallel and by wrappers that normalise
NORMALISATION = {"mu": "mean", "sigma": "std", "normalize.mean": "mean", "normalize.std": "std"}
CLASSIFIERS = ("fc.weight", "classifier.weight")


def load_model(
    name: str, path: str | Path | None = None, *, classes: int | None = None
) -> nn.Module:
    """A network of the catalogue with its published weights, in eval mode.

    path: by default where `rtta networks` found it. classes: where a file has another number than
    the catalogue, such as RobustBench's AugMix networks for the other CIFAR.
    """
    path = on_disk(name) if path is None else path
    if path is None:
        raise ModelError(
            f"{name} is not on disk; `rtta networks` says where it is looked for. "
            f"Published: {find(name).published}"
        )
    return load_weights(build(name, classes), path, name=name)


def load_weights(network: nn.Module, path: str | Path, *, name: str | None = None) -> nn.Module:
    """The network with the file's weights, in eval mode; it stays as it was if they do not fit."""
    path, name = Path(path), name or type(network).__name__
    if path.is_dir() and not isinstance(network, ResNet50V1):
        raise ModelError(f"{path} is a folder; expected a file of weights for {name}")
    state = {_plain_name(key): value for key, value in read_weights(path).items()}
    colours = {key: state.pop(key) for key in NORMALISATION if key in state}
    misfit = compare(state, network)
    if misfit:
        raise ModelError(f"{path} does not fit {name}: {misfit.describe()}. {_advice(state)}")
    _check_normalisation(colours, network, path)
    network.load_state_dict(network.state_dict() | state)  # old files lack num_batches_tracked
    return network.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file or folder, by the names it gives them."""
    if path.is_dir():
        return read_keras_resnet50(path)
    if not path.is_file():
        raise ModelError(f"{path} does not exist; expected a file of weights")
    return _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)


class Misfit(NamedTuple):
    """What keeps a file's tensors from a network; empty, and so false, when they fit."""

    missing: list[str]
    unexpected: list[str]
    other_shapes: list[str]

    def __bool__(self) -> bool:
        return any(self)

    def describe(self) -> str:
        """The first few of each kind.

        >>> Misfit(["fc.weight"], [], []).describe()
        '1 missing (fc.weight)'
        """
        kinds = zip(("missing", "unexpected", "of another shape"), self, strict=True)
        return ", ".join(f"{len(names)} {kind} ({_few(names)})" for kind, names in kinds if names)


def compare(state: Mapping[str, Tensor], network: nn.Module) -> Misfit:
    """How the tensors differ in name and shape from the network's."""
    expected = network.state_dict()
    needed = [key for key in expected if not key.endswith("num_batches_tracked")]
    return Misfit(
        [key for key in needed if key not in state],
        [key for key in state if key not in expected],
        [
            f"{key} {tuple(value.shape)}, expected {tuple(expected[key].shape)}"
            for key, value in state.items()
            if key in expected and value.shape != expected[key].shape
        ],
    )


def fitting(state: Mapping[str, Tensor]) -> list[str]:
    """Which networks of the catalogue the tensors would fit, and with how many classes."""
    classifiers = (state[key].shape for key in CLASSIFIERS if key in state)
    classes = next((shape[0] for shape in classifiers if len(shape) == 2 and shape[0]), None)
    return [
        f"{name} with {classes} classes"
        for name in NETWORKS
        if not compare(state, outline(name, classes))
    ]


def _advice(state: Mapping[str, Tensor]) -> str:
    names = fitting(state)
    return f"It would fit {' or '.join(names)}" if names else "No known network would fit"


def _few(names: list[str], most: int = 3) -> str:
    return "; ".join(names[:most]) + ("; ..." if len(names) > most else "")


def _plain_name(key: str) -> str:
    while key.startswith(PREFIXES):
        key = key.split(".", 1)[1]
    return key


def _check_normalisation(given: Mapping[str, Tensor], network: nn.Module, path: Path) -> None:
    """The colour means and deviations that a file carries must be the network's own."""
    normalize = getattr(network, "normalize", None)
    for key, values in given.items():
        own = getattr(normalize, NORMALISATION[key]) if isinstance(normalize, Normalize) else None
        found = [round(value, 4) for value in values.flatten().tolist()]
        expected = None if own is None else [round(value, 4) for value in own.flatten().tolist()]
        if found != expected:
            raise ModelError(
                f"{path} was trained on other colours: its {key} is {found}, the network's "
                f"{expected or 'absent'}; build the network with the file's normalisation"
            )


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors.torch import load_file  # noqa: PLC0415 - only these files need it
    except ImportError as error:
        raise ModelError(f"{path} needs the package safetensors; pip install it") from error
    try:
        return load_file(path)
    except Exception as error:  # as below
        raise ModelError(f"{path} is no safetensors file: {error}") from error


class _Forgotten:
    """Stands for a NumPy number beside the weights, such as the best accuracy: not needed here."""

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
            f"{path} is a web page, not weights: the download was answered by a question. "
            "Open the address in a browser, and save the file it leads to"
        )
    forgotten: list[Any] = [(_Forgotten, name) for name in NUMPY_NUMBERS]
    try:
        with torch.serialization.safe_globals(forgotten):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken file may break the reader in any way
        reason = f"{type(error).__name__} {error}".splitlines()[0]
        raise ModelError(
            f"{path} cannot be read as weights alone ({reason}). Expected tensors by name, as "
            "torch.save writes them; get it again, or save its state_dict() where you trust it"
        ) from error
    return _state_dict(content, path)


def _state_dict(content: object, path: Path) -> dict[str, Tensor]:
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content or not _all_tensors(content.values()):
        keys = f" of {_few(list(map(str, content)))}" if isinstance(content, Mapping) else ""
        raise ModelError(
            f"{path} holds a {type(content).__name__}{keys}; "
            "expected tensors by name, or such a dict under 'state_dict'"
        )
    return dict(content)


def _all_tensors(values: Iterable[object]) -> bool:
    return all(isinstance(value, Tensor) for value in values)
