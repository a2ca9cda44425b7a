from __future__ import annotations

import csv
from collections import Counter
from statistics import fmean

import pytest

from realistic_tta import METHODS
from realistic_tta.benchmark.datasets import DATASETS
from realistic_tta.benchmark.paper_tables import (
    AVERAGE,
    NUMBERS,
    PAPER_MODELS,
    TABLES,
    Cell,
    Column,
    printed,
)
from realistic_tta.benchmark.scenarios import SCENARIOS
from realistic_tta.cli.reproduce import TABLES as OFFERED
from realistic_tta.models.registry import find

# Typed from the paper's own tables: block by block, a row with its average last.
BY_HAND: list[tuple[str, str, str, str, list[float]]] = [
    ("continual_cifar", "cifar10-c", "continual", "cotta", [16.24, 17.65, 34.36, 78.88, 87.79, 90]),
    ("continual_cifar", "cifar10-c", "continual", "lame", [64.52, 57.66, 47.7, 44.38, 43.75, 90]),
    ("continual_cifar", "cifar100-c", "continual", "eta", [32.31, 35.17, 44.72, 88.22, 98.96]),
    ("continual_cifar", "cifar100-c", "continual", "rectified_tema", [34.63, 36.11, 35.31, 36.02]),
    ("continual_imagenet", "imagenet-c", "continual", "sar", [68.04, 62.62, 79.19, 92.71, 99.19]),
    ("continual_imagenet", "imagenet-c", "continual", "alpha_bn", [63.38, 63.75, 64.98, 66.61]),
    ("mixed_gradual", "cifar10-c", "mixed", "adacontrast", [26.12, 23.85, 23.58, 35.57, 62.5]),
    ("mixed_gradual", "cifar10-c", "mixed", "adapt_bn", [33.86, 34.35, 35.69, 36.96, 37.1, 37.52]),
    ("mixed_gradual", "cifar10-c", "gradual", "source", [24.66] * 6),
    ("mixed_gradual", "cifar10-c", "gradual", "rectified_tema", [13.5, 13.83, 14.03, 14.38, 13.71]),
    ("ablation", "cifar10-c", "continual", "source", [43.5, 43.5, 43.5, 43.5, 38.57, 43.5]),
    ("ablation", "cifar100-c", "continual", "tema", [35.5, 35.86, 35.83, 37.71, 41.16, 52.75]),
    ("ablation", "imagenet-c", "continual", "tbn", [66.4, 68.6, 70.79, 83.1, 92.74, 99.22]),
]
AVERAGES_BY_HAND = [
    ("continual_cifar", Cell("cifar10-c", "continual", "adapt_bn", AVERAGE), 26.59),
    ("continual_imagenet", Cell("imagenet-c", "continual", "rectified_tema", AVERAGE), 65.74),
    ("mixed_gradual", Cell("cifar10-c", "gradual", "tent", AVERAGE), 72.18),
    ("ablation", Cell("cifar100-c", "continual", "rectified_tema", AVERAGE), 36.28),
]


def test_every_number_of_the_paper_is_there_once() -> None:
    with NUMBERS.open(newline="") as file:
        counts = Counter(row["table"] for row in csv.DictReader(file))
    assert counts == {
        "continual_cifar": 2 * 11 * 7,
        "continual_imagenet": 11 * 6,
        "mixed_gradual": 2 * 11 * 7,
        "ablation": 3 * 4 * 7,
    }
    for name, table in TABLES.items():
        assert len(printed(table)) == counts[name]


@pytest.mark.parametrize(("name", "dataset", "scenario", "method", "errors"), BY_HAND)
def test_numbers_are_the_papers(
    name: str, dataset: str, scenario: str, method: str, errors: list[float]
) -> None:
    (block,) = [b for b in TABLES[name].blocks if (b.dataset, b.scenario) == (dataset, scenario)]
    numbers = printed(TABLES[name])
    shown = zip(block.batch_sizes, errors, strict=False)
    for size, error in shown:
        assert numbers[Cell(dataset, scenario, method, size)] == error


@pytest.mark.parametrize(("name", "cell", "error"), AVERAGES_BY_HAND)
def test_averages_are_the_papers(name: str, cell: Cell, error: float) -> None:
    assert printed(TABLES[name])[cell] == error


@pytest.mark.parametrize("name", TABLES)
def test_the_layout_has_a_place_for_every_number_and_a_number_for_every_place(name: str) -> None:
    table = TABLES[name]
    columns: dict[tuple[str, str], tuple[Column, ...]] = {
        (block.dataset, block.scenario): (*block.batch_sizes, AVERAGE) for block in table.blocks
    }
    places = [
        Cell(*block, method, column)
        for block, several in columns.items()
        for method in table.methods
        for column in several
    ]
    assert set(printed(table)) == set(places)


def test_rows_and_blocks_are_in_the_papers_order() -> None:
    shown = [row.label for row in TABLES["continual_cifar"].rows]
    assert " ".join(shown[:6]) == "Source TENT CoTTA SAR AdaCont. ETA"
    assert shown[6] == "TBN"
    assert " ".join(shown[8:]) == "AdaptBN LAME Ours"
    assert [row.label for row in TABLES["ablation"].rows] == ["Baseline", "TBN", "TEMA", "Ours"]
    assert TABLES["continual_imagenet"].blocks[0].batch_sizes == (64, 16, 4, 2, 1)
    assert [block.scenario for block in TABLES["mixed_gradual"].blocks] == ["mixed", "gradual"]
    kinds = {row.method: row.kind for row in TABLES["mixed_gradual"].rows}
    assert {method for method, kind in kinds.items() if kind == "TR"} == {
        "tent", "cotta", "sar", "adacontrast", "eta"
    }  # fmt: skip


def test_what_the_tables_name_exists() -> None:
    assert tuple(TABLES) == OFFERED
    for table in TABLES.values():
        assert set(table.methods) <= set(METHODS)
        for block in table.blocks:
            assert block.dataset in DATASETS
            assert block.scenario in SCENARIOS
            assert find(PAPER_MODELS[block.dataset]).dataset == block.dataset.removesuffix("-c")


def test_the_paper_averages_its_rows_but_for_the_errata_that_are_told() -> None:
    """A cent of rounding apart; each exception is an erratum of its block."""
    wrong = []
    for table in TABLES.values():
        numbers = printed(table)
        for block in table.blocks:
            for method in table.methods:
                place = (block.dataset, block.scenario, method)
                mean = fmean(numbers[Cell(*place, size)] for size in block.batch_sizes)
                if abs(mean - numbers[Cell(*place, AVERAGE)]) > 0.0101:
                    wrong.append((table.name, block.dataset, method))
                    assert block.errata
    assert wrong == [
        ("ablation", "cifar10-c", "source"),
        ("ablation", "imagenet-c", "tbn"),
        ("ablation", "imagenet-c", "tema"),
    ]
