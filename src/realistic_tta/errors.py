"""Everything this library raises of its own.

RealisticTTAError
    SettingError    (ValueError)    a method, setting or argument of `adapt` that cannot be
    ModelError    (ValueError)    a network that cannot be adapted, frozen or loaded
    InputError      (ValueError)    a batch that cannot be predicted
        NonFiniteError              NaN or Inf in the images, or made of them by the network
    ForwardError    (RuntimeError)  the network itself failed on a batch
    StateError      (ValueError)    a state or file that does not belong to this network and method
    DistributedError       (RuntimeError)  another process of the group left, failed or is out of step
    DataError       (ValueError)    a data set that is missing, damaged or of another layout
    ResultsError    (ValueError)    a folder of results that cannot be read or written

Whichever is raised, every statistic is as it was before the call.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RealisticTTAError(Exception):
    """The root of this library's exceptions."""


class SettingError(RealisticTTAError, ValueError):
    """A method, setting or argument of `adapt` that cannot be."""


class ModelError(RealisticTTAError, ValueError):
    """A network that cannot be adapted, frozen or loaded."""


class InputError(RealisticTTAError, ValueError):
    """A batch that cannot be predicted."""


class NonFiniteError(InputError):
    """NaN or Inf in the images, or made of them by the network."""


class ForwardError(RealisticTTAError, RuntimeError):
    """The network itself failed on a batch."""


class StateError(RealisticTTAError, ValueError):
    """A state, or a file of one, that does not belong to this network and method."""


class DistributedError(RealisticTTAError, RuntimeError):
    """Another process of the group left, failed, or is out of step."""


class DataError(RealisticTTAError, ValueError):
    """A data set that is missing, damaged or of another layout."""


class ResultsError(RealisticTTAError, ValueError):
    """A folder of results that cannot be read or written."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The answer to a name that does not exist: the nearest that does, or all of them.

    >>> unknown("method", "tmea", ["tema", "tbn"])
    'unknown method "tmea"; did you mean "tema"?'
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f'unknown {kind} "{name}"; did you mean "{near[0]}"?'
    return f'unknown {kind} "{name}"; expected one of: {", ".join(names) or "none"}'
