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
    """The base class of this library's exceptions."""


class OptionError(RealisticTTAError, ValueError):
    """An unknown method or option, or a value that is not allowed."""


class ModelError(RealisticTTAError, ValueError):
    """A model that cannot be adapted, frozen or loaded."""


class InputError(RealisticTTAError, ValueError):
    """A batch that cannot be predicted."""


class NonFiniteError(InputError):
    """NaN or Inf in the images, or produced by the model."""


class ForwardError(RealisticTTAError, RuntimeError):
    """The model itself failed on a batch."""


class StateError(RealisticTTAError, ValueError):
    """A state, or a file with one, that does not belong to this model and method."""


class DistributedError(RealisticTTAError, RuntimeError):
    """Another process of the group left, failed or is out of step."""


class DataError(RealisticTTAError, ValueError):
    """A data set that is missing, damaged or of another layout."""


class ResultsError(RealisticTTAError, ValueError):
    """A results folder that cannot be read or written."""


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
