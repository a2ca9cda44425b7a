"""How many distinct classes a batch is expected to hold (paper, Proposition 1, Eq. 2).

Used by momentum.py, which asks how many batches must be averaged until the target's class
diversity matches the source's.
"""

from __future__ import annotations


def class_diversity(classes: int, batch_size: int) -> float:
    """The paper's expected number of distinct classes in a batch (Eq. 2), in closed form.

    Eq. 2 sums k C(N-1, k-1) C(K, k) / C(N+K-1, K-1) over k. That is the mean of a hypergeometric
    distribution: choosing which of the K classes appear among N + K - 1 places. Hence

        class_diversity = classes * batch_size / (batch_size + classes - 1)

    The formula counts every split of N samples over K classes as equally likely. For independent
    draws see `iid_class_diversity`; the paper's momentum table rests on this one.

    Args:
        classes: the number of classes, K.
        batch_size: the number of samples, N.

    Returns:
        The expected number, from 1 to `classes`.

    Raises:
        ValueError: a count below 1.

    >>> round(class_diversity(classes=10, batch_size=128), 2)
    9.34
    >>> round(class_diversity(classes=10, batch_size=2), 2)
    1.82
    """
    _require_positive(classes=classes, batch_size=batch_size)
    return classes * batch_size / (batch_size + classes - 1)


def iid_class_diversity(classes: int, batch_size: int) -> float:
    """The expected number of distinct classes among independent, uniform draws.

        iid_class_diversity = classes * (1 - (1 - 1 / classes) ** batch_size)

    A class is missed by one draw with probability 1 - 1/K and by all N with that to the N.

    Args:
        classes: the number of classes, K.
        batch_size: the number of draws, N.

    Returns:
        The expected number, from 1 to `classes`.

    Raises:
        ValueError: a count below 1.

    >>> round(iid_class_diversity(classes=10, batch_size=2), 2)
    1.9
    """
    _require_positive(classes=classes, batch_size=batch_size)
    return float(classes * (1 - (1 - 1 / classes) ** batch_size))


def _require_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} is {count}; expected a count of 1 or more")
