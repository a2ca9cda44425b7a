from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realistic_tta.functional.class_diversity import class_diversity, iid_class_diversity


def eq_2(classes: int, batch_size: int) -> Fraction:
    """Proposition 1, as printed: a sum of exact fractions."""
    total = comb(batch_size + classes - 1, classes - 1)
    return sum(
        (
            Fraction(k * comb(batch_size - 1, k - 1) * comb(classes, k), total)
            for k in range(1, classes + 1)
        ),
        Fraction(0),
    )


@given(st.integers(1, 60), st.integers(1, 300))
def test_closed_form_is_the_papers_sum(classes: int, batch_size: int) -> None:
    assert class_diversity(classes, batch_size) == pytest.approx(float(eq_2(classes, batch_size)))


@pytest.mark.parametrize(("batch_size", "printed"), [(128, 9.34), (200, 9.57), (2, 1.82)])
def test_figures_printed_in_the_paper(batch_size: int, printed: float) -> None:
    assert round(class_diversity(10, batch_size), 2) == printed


@pytest.mark.parametrize(("classes", "batch_size"), [(10, 2), (10, 64), (100, 16), (1000, 200)])
def test_iid_form_is_what_a_simulation_counts(classes: int, batch_size: int) -> None:
    draws = np.random.default_rng(0).integers(classes, size=(4000, batch_size))
    counts = [len(np.unique(draw)) for draw in draws]
    error = 4 * np.std(counts) / np.sqrt(len(counts))
    assert abs(iid_class_diversity(classes, batch_size) - np.mean(counts)) <= error + 1e-9


@given(st.integers(1, 1000), st.integers(1, 10_000))
def test_diversity_lies_between_one_and_what_there_is(classes: int, batch_size: int) -> None:
    for diversity in (class_diversity, iid_class_diversity):
        found = diversity(classes, batch_size)
        assert 1 - 1e-9 <= found <= min(classes, batch_size) + 1e-9
        assert found <= diversity(classes, batch_size + 1) + 1e-9


@pytest.mark.parametrize("counts", [(0, 1), (1, 0), (10, -3)])
def test_counts_below_one_are_refused(counts: tuple[int, int]) -> None:
    for diversity in (class_diversity, iid_class_diversity):
        with pytest.raises(ValueError, match="expected a count of 1 or more"):
            diversity(*counts)
