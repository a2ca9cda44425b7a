"""The 15 corruptions of CIFAR-C and ImageNet-C, and four more for validation, at five severities.

`corrupt` is the one call. The functions are in noise.py, blur.py, weather.py and digital.py; their
published parameters in parameters.py.
"""

from .catalogue import corrupt

__all__ = ["corrupt"]
