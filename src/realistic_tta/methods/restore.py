"""An adapted network from the file that its `save` has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from realistic_tta.errors import SettingError, StateError, unknown

from .base import AdaptedModel, unwrap
from .catalogue import METHODS, equipped, guarded, tolerant
from .fingerprint import Fingerprint, fingerprint
from .guard_state import PREFIX, continue_guard
from .health import Counts
from .settings_json import from_json
from .state_file import Stored, read_state
from .stored_state import own_state


def load(
    path: str | Path,
    network: nn.Module,
    *,
    sync: Literal["torch.distributed"] | None = None,
    on_bad_input: Literal["exclude", "raise"] = "exclude",
    bad_output: Literal["source", "nan"] = "source",
    guard: bool = False,
) -> AdaptedModel:
    """The network, adapted as it was when it was saved; it goes on to the last bit.

    Method and settings are those in the file. A file of another network, of an unknown method or
    format, or one that is truncated or altered is refused with a StateError.

    Args:
        path: a file that `adapted.save(path)` has written.
        network: the network that was adapted, as it was trained. It is copied, not changed.
        sync: as in `adapt`; a state is the same with and without.
        on_bad_input: as in `adapt`.
        bad_output: as in `adapt`.
        guard: as in `adapt`; if the file is of a guarded network, the guard goes on, too.
    """
    if not isinstance(network, nn.Module) or isinstance(network, AdaptedModel):
        raise SettingError(f"network is a {type(network).__name__}; expected the one as trained")
    stored = read_state(Path(path))
    try:
        expected = Fingerprint(**json.loads(stored.words["network"]))
        counts = Counts(**json.loads(stored.words["counts"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"{path} lacks what every state holds ({error})") from error
    if difference := expected.difference(fingerprint(unwrap(network))):
        raise StateError(f"{path} belongs to another network: of the one given, {difference}")
    adapted = _adapt(path, stored, network)
    _continue(path, stored, adapted)
    adapted.counts = counts
    equipped(adapted, compile=False, sync=sync)
    guarded(tolerant(adapted, on_bad_input, bad_output), guard=guard)
    if adapted.guard is not None and "guard" in stored.words:
        held = {name: each for name, each in stored.tensors.items() if name.startswith(PREFIX)}
        continue_guard(adapted.guard, stored.words["guard"], held, own_state(adapted))
    return adapted


def _adapt(path: str | Path, stored: Stored, network: nn.Module) -> AdaptedModel:
    """With the method and the settings of the file, nothing learnt yet."""
    name = stored.words.get("method", "")
    if name not in METHODS:
        raise StateError(f"{path}: {unknown('method', name, METHODS)}")
    try:
        settings = from_json(METHODS[name].settings_type, stored.words["settings"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"{path} holds settings that {name} does not take ({error}). "
            f"It was written by version {stored.words.get('package_version')}"
        ) from error
    with torch.inference_mode(mode=False):  # what it makes may have to carry gradients
        return METHODS[name](network, settings)


def _continue(path: str | Path, stored: Stored, adapted: AdaptedModel) -> None:
    """Puts the stored state in place; torch would convert a type in silence, and lose digits."""
    own = own_state(adapted)
    for name, tensor in stored.tensors.items():
        if name in own and tensor.dtype != own[name].dtype:
            raise StateError(f'{path}: "{name}" is {tensor.dtype}, expected {own[name].dtype}')
    fixed = {name: value for name, value in adapted.state_dict().items() if name not in own}
    learnt = {name: each for name, each in stored.tensors.items() if not name.startswith(PREFIX)}
    adapted.load_state_dict(fixed | learnt)
