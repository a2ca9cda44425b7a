"""Test-time adaptation that works at every batch size."""

from importlib.metadata import version as _version

from .errors import (
    DataError,
    DistributedError,
    ForwardError,
    InputError,
    ModelError,
    RealisticTTAError,
    ResultsError,
    SettingError,
    StateError,
)
from .functional.class_diversity import class_diversity, iid_class_diversity
from .functional.momentum import choose_momentum
from .methods.base import AdaptedModel
from .methods.catalogue import METHODS, adapt
from .methods.health import Health
from .methods.optimizers import SGD, Adam
from .methods.report import LayerReport, Report, SkippedLayer
from .methods.restore import load
from .serving.drift_alarm import DriftAlarm

__version__ = _version("realistic-tta")

__all__ = [
    "METHODS",
    "SGD",
    "Adam",
    "AdaptedModel",
    "DataError",
    "DistributedError",
    "DriftAlarm",
    "ForwardError",
    "Health",
    "InputError",
    "LayerReport",
    "ModelError",
    "RealisticTTAError",
    "Report",
    "ResultsError",
    "SettingError",
    "SkippedLayer",
    "StateError",
    "__version__",
    "adapt",
    "choose_momentum",
    "class_diversity",
    "iid_class_diversity",
    "load",
]
