"""Test-time adaptation that works at every batch size."""

from importlib.metadata import version as _version

from .api import adapt, load, recalibrate
from .core.adapted_model import AdaptedModel
from .core.report import LayerReport, Report, SkippedLayer
from .errors import (
    DataError,
    DistributedError,
    ForwardError,
    InputError,
    ModelError,
    NonFiniteError,
    OptionError,
    RealisticTTAError,
    ResultsError,
    StateError,
)
from .functional.class_diversity import class_diversity, iid_class_diversity
from .functional.momentum import choose_momentum
from .methods._training.optimizers import SGD, Adam
from .methods.adacontrast import AdaContrast
from .methods.adapt_bn import AdaptBN
from .methods.alpha_bn import AlphaBN
from .methods.cotta import Cotta
from .methods.eta import Eta
from .methods.lame import Lame
from .methods.realistic import Realistic
from .methods.rectified_tema import RectifiedTema
from .methods.registry import METHODS
from .methods.sar import Sar
from .methods.source import Source
from .methods.tbn import TBN
from .methods.tema import Tema
from .methods.tent import Tent
from .serving.drift_alarm import DriftAlarm
from .serving.health import Health
from .serving.served_model import ServedModel
from .wrappers.guard import GuardSettings

__version__ = _version("realistic-tta")

__all__ = [
    "METHODS",
    "SGD",
    "TBN",
    "AdaContrast",
    "Adam",
    "AdaptBN",
    "AdaptedModel",
    "AlphaBN",
    "Cotta",
    "DataError",
    "DistributedError",
    "DriftAlarm",
    "Eta",
    "ForwardError",
    "GuardSettings",
    "Health",
    "InputError",
    "Lame",
    "LayerReport",
    "ModelError",
    "NonFiniteError",
    "OptionError",
    "Realistic",
    "RealisticTTAError",
    "RectifiedTema",
    "Report",
    "ResultsError",
    "Sar",
    "ServedModel",
    "SkippedLayer",
    "Source",
    "StateError",
    "Tema",
    "Tent",
    "__version__",
    "adapt",
    "choose_momentum",
    "class_diversity",
    "iid_class_diversity",
    "load",
    "recalibrate",
]
