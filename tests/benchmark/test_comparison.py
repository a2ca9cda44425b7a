from __future__ import annotations

import pytest
from bench_subjects import record

from realistic_tta.benchmark.comparison import compare, mean_errors, ranks
from realistic_tta.benchmark.experiment import Experiment
from realistic_tta.benchmark.paper_tables import AVERAGE, TABLES

ABLATION = TABLES["ablation"]
CIFAR10, _, IMAGENET = ABLATION.blocks
TBN = [row for row in ABLATION.rows if row.method == "tbn"]


def test_the_difference_is_measured_minus_paper() -> None:
    """The paper's: 20.35 at 200, 31.62 at 4."""
    found = compare(ABLATION, CIFAR10, TBN, [200, 4], {("tbn", 200): 21.35, ("tbn", 4): 30.62})
    assert found.columns == (200, 4, AVERAGE)
    assert found.difference["tbn", 200] == pytest.approx(1)
    assert found.difference["tbn", 4] == pytest.approx(-1)
    assert found.measured["tbn", AVERAGE] == pytest.approx(25.985)
    assert found.paper["tbn", AVERAGE] == pytest.approx(25.985)
    assert found.difference["tbn", AVERAGE] == pytest.approx(0)


def test_with_all_columns_the_papers_average_is_the_printed_one() -> None:
    """It leaves out batch size 200 there; the difference compares like with like all the same."""
    sizes = IMAGENET.batch_sizes
    paper = [66.40, 68.60, 70.79, 83.10, 92.74, 99.22]
    errors = {("tbn", size): error + 2 for size, error in zip(sizes, paper, strict=True)}
    found = compare(ABLATION, IMAGENET, TBN, sizes, errors)
    assert found.paper["tbn", AVERAGE] == 82.89
    assert found.measured["tbn", AVERAGE] == pytest.approx(sum(paper) / 6 + 2)
    assert found.difference["tbn", AVERAGE] == pytest.approx(2)


def test_what_is_not_measured_or_not_in_the_paper_is_left_open() -> None:
    found = compare(ABLATION, CIFAR10, TBN, [200, 8], {("tbn", 8): 25.0})
    assert found.measured == {("tbn", 8): 25.0}
    assert found.paper == {("tbn", 200): 20.35}
    assert found.difference == {}


def test_errors_are_averaged_over_seeds_once_all_are_done() -> None:
    def run(method: str, seed: int) -> Experiment:
        return Experiment("cifar10", "cifar10-c", "continual", method, 4, seed=seed)

    planned = {(method, 4): [run(method, 1), run(method, 2)] for method in ("tbn", "tema")}
    records = [
        record("a", experiment=run("tbn", 1).id, error=30.0),
        record("b", experiment=run("tbn", 2).id, error=31.0),
        record("c", experiment=run("tema", 1).id, error=20.0),
        record("d", experiment=run("tema", 2).id, error=None, status="failed"),
    ]
    assert mean_errors(planned, records) == {("tbn", 4): 30.5}


def test_the_marks_on_the_papers_numbers_are_the_papers() -> None:
    """Its bold and underlined figures for CIFAR-100-C, typed from the table."""
    table = TABLES["continual_cifar"]
    block = table.blocks[1]
    found = ranks(compare(table, block, table.rows, block.batch_sizes, {}).paper, table.rows)
    best = {place for place, mark in found.items() if mark == 1}
    second = {place for place, mark in found.items() if mark == 2}
    ours = (200, 16, 4, 2, 1, AVERAGE)
    assert best == {*(("rectified_tema", column) for column in ours), ("adapt_bn", 64)}
    assert second == {
        ("rectified_tema", 64),
        *(("adapt_bn", column) for column in (200, 16, 4, AVERAGE)),
        *(("alpha_bn", column) for column in (16, 2, 1)),
    }
