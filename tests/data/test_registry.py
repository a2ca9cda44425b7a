from __future__ import annotations

from pathlib import Path

import pytest

from realistic_tta.data.registry import (
    CIFAR10_CLASSES,
    CIFAR100_CLASSES,
    CLEAN,
    CORRUPTIONS,
    DATASETS,
    EXTRA_CORRUPTIONS,
    data_folder,
    dataset,
)
from realistic_tta.errors import DataError


def test_fifteen_corruptions_and_four_more() -> None:
    assert len(CORRUPTIONS) == 15
    assert CORRUPTIONS[0] == "gaussian_noise"
    assert CORRUPTIONS[-1] == "jpeg_compression"
    assert len({*CORRUPTIONS, *EXTRA_CORRUPTIONS, CLEAN}) == 20


def test_classes_are_as_many_as_the_names_and_in_the_official_order() -> None:
    """Both official lists are alphabetical."""
    assert len(CIFAR10_CLASSES) == DATASETS["cifar10"].classes
    assert len(set(CIFAR100_CLASSES)) == DATASETS["cifar100"].classes
    assert list(CIFAR10_CLASSES) == sorted(CIFAR10_CLASSES)
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)


@pytest.mark.parametrize("name", DATASETS)
def test_every_archive_says_where_it_is_and_what_it_must_be(name: str) -> None:
    found = DATASETS[name]
    assert found.name == name
    assert found.archives
    for archive in found.archives:
        assert archive.url.startswith("https://")
        assert archive.url.endswith(f"/{archive.name}")
        assert archive.size > 100_000_000
        assert len(archive.md5) == 32
        assert archive.sha256 is None or len(archive.sha256) == 64


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(DataError, match=r'unknown data set "cifar-10"; did you mean "cifar10"\?'):
        dataset("cifar-10")


def test_the_folder_is_the_environments_or_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTTA_DATA", "elsewhere")
    assert data_folder() == Path("elsewhere")
    monkeypatch.delenv("RTTA_DATA")
    assert data_folder() == Path.home() / ".cache" / "realistic-tta" / "data"
