"""The exceptions that this library raises.

RealisticTTAError
    OptionError       (ValueError)    an unknown method or option, or a value that is not allowed
    ModelError        (ValueError)    a model that cannot be adapted, frozen or loaded
    InputError        (ValueError)    a batch that cannot be predicted
        NonFiniteError                NaN or Inf in the images, or produced by the model
    ForwardError      (RuntimeError)  the model itself failed on a batch
    StateError        (ValueError)    a state or file that does not belong to this model and method
    DistributedError  (RuntimeError)  another process of the group left, failed or is out of step
    DataError         (ValueError)    a data set that is missing, damaged or of another layout
    ResultsError      (ValueError)    a results folder that cannot be read or written

A call that raises leaves the state of the adapted model unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RealisticTTAError(Exception):
    """The base class of this library's exceptions.

    >>> from realistic_tta import RealisticTTAError, StateError
    >>> issubclass(StateError, RealisticTTAError)
    True
    """


class OptionError(RealisticTTAError, ValueError):
    """An unknown method or option, or a value that is not allowed.

    >>> import torch, realistic_tta
    >>> realistic_tta.adapt(torch.nn.BatchNorm1d(3), "tmea")
    Traceback (most recent call last):
    realistic_tta.errors.OptionError: unknown method "tmea"; did you mean "tema"?
    """


class ModelError(RealisticTTAError, ValueError):
    """A model that cannot be adapted, frozen or loaded.

    >>> import torch, realistic_tta
    >>> realistic_tta.adapt(torch.nn.Linear(3, 2))
    Traceback (most recent call last):
    realistic_tta.errors.ModelError: the model has no BatchNorm layer; ...
    """


class InputError(RealisticTTAError, ValueError):
    """A batch that cannot be predicted.

    >>> import torch, realistic_tta
    >>> realistic_tta.adapt(torch.nn.BatchNorm1d(3))(torch.ones(2, 3, dtype=torch.int64))
    Traceback (most recent call last):
    realistic_tta.errors.InputError: argument 1 is torch.int64, shape (2, 3); ...
    """


class NonFiniteError(InputError):
    """NaN or Inf in the images, or produced by the model.

    >>> import torch, realistic_tta
    >>> realistic_tta.adapt(torch.nn.BatchNorm1d(2))(torch.tensor([[0.0, torch.nan]]))
    Traceback (most recent call last):
    realistic_tta.errors.NonFiniteError: argument 1 holds NaN or Inf in 1 of 1 images, ...
    """


class ForwardError(RealisticTTAError, RuntimeError):
    """The model itself failed on a batch.

    >>> import torch, realistic_tta
    >>> realistic_tta.adapt(torch.nn.BatchNorm1d(3), "source")(torch.rand(8, 4))
    Traceback (most recent call last):
    realistic_tta.errors.ForwardError: running_mean should contain 4 elements not 3...
    """


class StateError(RealisticTTAError, ValueError):
    """A state, or a file with one, that does not belong to this model and method.

    >>> import torch, realistic_tta
    >>> realistic_tta.adapt(torch.nn.BatchNorm1d(3)).load_state_dict({})
    Traceback (most recent call last):
    realistic_tta.errors.StateError: this state does not belong to ...
    """


class DistributedError(RealisticTTAError, RuntimeError):
    """Another process of the group left, failed or is out of step.

    >>> issubclass(DistributedError, RuntimeError)
    True
    """


class DataError(RealisticTTAError, ValueError):
    """A data set that is missing, damaged or of another layout.

    >>> from pathlib import Path
    >>> from realistic_tta.data.cifar import load_cifar
    >>> load_cifar("cifar10", "test", Path("missing"))
    Traceback (most recent call last):
    realistic_tta.errors.DataError: ...
    """


class ResultsError(RealisticTTAError, ValueError):
    """A results folder that cannot be read or written.

    >>> from pathlib import Path
    >>> from realistic_tta.benchmark.results import Results
    >>> Results(Path("missing"), create=False)
    Traceback (most recent call last):
    realistic_tta.errors.ResultsError: ...
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist: the nearest one that does, or all of them.

    >>> unknown("method", "tmea", ["tema", "tbn"])
    'unknown method "tmea"; did you mean "tema"?'
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f'unknown {kind} "{name}"; did you mean "{near[0]}"?'
    return f'unknown {kind} "{name}"; expected one of: {", ".join(names) or "none"}'
