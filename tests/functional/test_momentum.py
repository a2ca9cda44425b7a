from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from realistic_tta.functional.momentum import (
    CANDIDATES,
    choose_momentum,
    expanded_scope,
    momentum_objective,
)

PUBLISHED = {  # (classes, source batch size): momentum at target batch sizes 200, 64, 16, 4, 2, 1
    (10, 128): (1, 1, 0.1, 0.1, 0.01, 0.01),
    (100, 128): (1, 1, 0.1, 0.1, 0.01, 0.01),
    (1000, 256): (1, 0.1, 0.1, 0.01, 0.01, 0.01),
}


@pytest.mark.parametrize("dataset", PUBLISHED)
def test_all_published_choices(dataset: tuple[int, int]) -> None:
    found = tuple(choose_momentum(*dataset, size) for size in (200, 64, 16, 4, 2, 1))
    assert found == PUBLISHED[dataset]


@given(st.floats(0.001, 1), st.integers(1, 500))
def test_scope_counts_the_batches_that_still_weigh(momentum: float, batch_size: int) -> None:
    """Brute force of Proposition 2: batches k = 1, 2, ... back whose weight is still 0.1."""
    weights = [(1 - momentum) ** k for k in range(1, 2400)]
    assume(all(abs(weight - 0.1) > 1e-9 for weight in weights))  # there rounding decides
    still = sum(weight > 0.1 for weight in weights)
    assert expanded_scope(momentum, batch_size) == max(still, 1) * batch_size


def test_objective_by_hand() -> None:
    """K = 10, source 128, batch 4, momentum 0.1: scope 84, diversities 9.3431 and 9.0323."""
    found = momentum_objective(0.1, 10, 128, 4)
    assert found.expanded_scope == 84
    assert found.class_diversity == pytest.approx(10 * 84 / 93)
    assert found.objective == pytest.approx(
        abs(9.343066 / 9.032258 - 1) + 0.01 * 84 / 128, abs=1e-6
    )


@given(st.integers(1, 1000), st.integers(1, 512), st.integers(1, 512))
def test_choice_is_the_least_of_all_candidates(classes: int, source: int, batch: int) -> None:
    chosen = choose_momentum(classes, source, batch)
    objectives = {m: momentum_objective(m, classes, source, batch).objective for m in CANDIDATES}
    assert objectives[chosen] == min(objectives.values())


@pytest.mark.parametrize("momentum", [0, -0.1, 1.1, float("nan")])
def test_momentum_outside_its_range_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        expanded_scope(momentum, 4)
