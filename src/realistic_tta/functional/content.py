"""What pictures differ by because of what they show: the covariance of the parts of single images.

Noise is all over a picture, and what it shows is not: its quarters differ by content alone. So
distances between signatures (signature.py) are measured in units of what quarters of single
pictures differ by. Used by statistics/domains.py and statistics/changes.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arrays import Array, alike, as_tensor
from .kernel import whitened_at_once
from .leaning import Number, number

_RIDGE = 0.01  # a part of the variances, for directions in which no picture differs from itself
_LEAST = 1e-4


class Content(NamedTuple):
    """scatter: of parts about their image, (feature, feature). images: of how many, ()."""

    scatter: Array
    images: Array


def scatter_of(parts: Tensor) -> Tensor:
    """Summed over the images: (image, part, feature) to (feature, feature)."""
    apart = (parts - parts.mean(dim=1, keepdim=True)).flatten(0, 1)
    return apart.T @ apart / (parts.shape[1] - 1)


def learn_content(content: Content, scatter: Array, images: int, decay: Number) -> Content:
    """With what the parts of so many images differ by."""
    kept = decay**images
    return Content(kept * content.scatter + scatter, kept * content.images + images)


def whitening(content: Content, parts: int) -> Tensor:
    """Lower triangular; a signature divided by it has the content's variance 1 in any direction.

    The fewer images, the more of the covariances between features is left out. parts: of an image.
    """
    of_covariances, of_variances = _shares(content, parts, number(content.images))
    scatter = as_tensor(content.scatter)
    covariance = scatter * of_covariances
    variances = scatter.diagonal() * of_variances
    covariance.diagonal().copy_(variances).add_(_LEAST)
    factor: Tensor = torch.linalg.cholesky_ex(covariance)[0]
    return factor


def whitened_squares(content: Content, parts: int, signatures: Array) -> Array:
    """Squared lengths of `whiten`ed signatures, (image, feature): (image,)."""
    images = number(content.images)
    if not isinstance(images, Tensor):
        shares = _shares(content, parts, images)
        at_once = whitened_at_once(content.scatter, signatures, *shares, _LEAST)
        if at_once is not None:
            return at_once
    apart = alike(whiten(as_tensor(signatures), whitening(content, parts)), signatures)
    squares: Array = (apart * apart).sum(1)
    return squares


def whiten(signatures: Tensor, factor: Tensor) -> Tensor:
    """Signatures divided by `whitening`, (image, feature)."""
    white: Tensor = torch.linalg.solve_triangular(factor, signatures.T, upper=False)
    return white.T


def _shares(content: Content, parts: int, images: Any) -> tuple[Any, Any]:
    """What of the scatter off the diagonal, and on it, is covariance: two numbers."""
    features = len(content.scatter)
    left_out = features / (features + (parts - 1) * images)
    return (1 - left_out) / images, (1 + _RIDGE) / images
