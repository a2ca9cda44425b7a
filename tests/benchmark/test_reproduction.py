from __future__ import annotations

from pathlib import Path

import pytest

from realistic_tta.benchmark.experiment import grid
from realistic_tta.benchmark.paper_tables import TABLES
from realistic_tta.benchmark.reproduction import (
    Subject,
    choose_rows,
    experiments_of,
    find_subjects,
)
from realistic_tta.errors import DataError, OptionError

CIFAR, ABLATION = TABLES["continual_cifar"], TABLES["ablation"]
ON_DISK = {
    "wrn-28-10-standard": "models/cifar10/corruptions/Standard.pt",
    "cifar10-c": "cifar10-c/CIFAR-10-C.tar",
    "cifar100-c": "cifar100-c/CIFAR-100-C.tar",
}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RTTA_DATA", str(tmp_path))
    return tmp_path


def put(disk: Path, *names: str) -> None:
    for name in names:
        path = disk / ON_DISK[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_all_that_is_missing_is_told_with_where_it_is_published(disk: Path) -> None:
    with pytest.raises(DataError) as error:
        find_subjects(ABLATION)
    told = str(error.value)
    for model in ("wrn-28-10-standard", "resnext-29-augmix", "resnet-50-torchvision"):
        assert f"model {model}. Published: " in told
    assert f"Expected at {disk / 'models/cifar10/corruptions/Standard.pt'}" in told
    assert "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar" in told
    for data in ("cifar10-c", "cifar100-c", "imagenet-c"):
        assert f"`rtta data get {data}` fetches it" in told
    assert "`rtta reproduce ablation --models embedded`" in told
    assert "not comparable" in told
    assert "runs what is complete" not in told


def test_what_is_on_disk_is_not_told_and_the_complete_part_is_offered(disk: Path) -> None:
    put(disk, "wrn-28-10-standard", "cifar10-c")
    with pytest.raises(DataError) as error:
        find_subjects(CIFAR)
    told = str(error.value)
    assert "wrn-28-10-standard" not in told
    assert "`rtta data get cifar10-c`" not in told
    assert "model resnext-29-augmix" in told
    assert "`--datasets cifar10-c` runs what is complete" in told
    (only,), left_out = find_subjects(CIFAR, datasets=["cifar10-c"])
    assert only == Subject(CIFAR.blocks[0], "wrn-28-10-standard", "cifar10-c")
    assert left_out == []
    assert only.differences() == []


def test_without_data_the_embedded_network_runs_on_the_packages_images(disk: Path) -> None:
    (only,), left_out = find_subjects(ABLATION, "embedded")
    assert only == Subject(ABLATION.blocks[0], "cifar10", "cifar10-c-sample")
    assert only.differences() == [
        "model cifar10 instead of wrn-28-10-standard",
        "the package's 2,000 images instead of cifar10-c",
    ]
    hundred, imagenet = left_out
    assert hundred.startswith("CIFAR-100-C: cifar100-c is not on disk")
    assert f"`rtta corrupt cifar100 --out {disk / 'cifar100-c'}` generates it" in hundred
    assert imagenet == "ImageNet-C: the package has no model for it"


def test_the_embedded_networks_run_on_published_images_where_these_are(disk: Path) -> None:
    put(disk, "cifar10-c", "cifar100-c")
    subjects, _ = find_subjects(ABLATION, "embedded")
    assert [(each.model, each.dataset) for each in subjects] == [
        ("cifar10", "cifar10-c"),
        ("cifar100", "cifar100-c"),
    ]
    assert subjects[1].differences() == ["model cifar100 instead of resnext-29-augmix"]


def test_images_that_were_corrupted_here_are_not_taken_for_the_published(disk: Path) -> None:
    put(disk, "wrn-28-10-standard", "cifar10-c")
    (disk / "cifar10-c" / "corruptions.json").write_text("{}")
    (only,), _ = find_subjects(CIFAR, datasets=["cifar10-c"])
    assert only.differences() == ["a generated cifar10-c instead of the published one"]


def test_the_papers_network_can_run_on_the_packages_images(disk: Path) -> None:
    put(disk, "wrn-28-10-standard")
    (only,), _ = find_subjects(ABLATION, datasets=["cifar10-c-sample"])
    assert (only.model, only.dataset) == ("wrn-28-10-standard", "cifar10-c-sample")


def test_a_named_network_runs_the_blocks_of_its_classes(disk: Path) -> None:
    put(disk, "cifar100-c")
    (only,), left_out = find_subjects(CIFAR, "cifar100")
    assert (only.block.title, only.model) == ("CIFAR-100-C", "cifar100")
    assert left_out == ["CIFAR-10-C: cifar100 has other classes"]


@pytest.mark.usefixtures("disk")
def test_what_cannot_be_run_at_all_is_an_error() -> None:
    with pytest.raises(DataError, match=r"nothing of continual_imagenet can be run.\n  ImageNet-C"):
        find_subjects(TABLES["continual_imagenet"], "embedded")
    with pytest.raises(OptionError, match='did you mean "wrn-28-10'):
        find_subjects(CIFAR, "wrn-28-10")
    with pytest.raises(OptionError, match="continual_cifar has no imagenet-c; expected one of: c"):
        find_subjects(CIFAR, datasets=["imagenet-c"])
    with pytest.raises(OptionError, match='unknown method in ablation "tmea"; did you mean "tem'):
        choose_rows(ABLATION, ["tmea"])


def test_rows_stay_in_the_papers_order() -> None:
    rows = choose_rows(CIFAR, ["rectified_tema", "source", "tent"])
    assert [row.label for row in rows] == ["Source", "TENT", "Ours"]


def test_records_of_bench_serve() -> None:
    """The same experiments by the two routes have the same ids."""
    subject = Subject(CIFAR.blocks[0], "cifar10", "cifar10-c")
    planned = experiments_of(subject, CIFAR.methods, [200, 1], [1], None)
    benched = grid({"methods": list(CIFAR.methods), "batch_sizes": [200, 1]})
    assert {each.id for several in planned.values() for each in several} == {
        each.id for each in benched
    }


def test_methods_get_the_published_settings_of_the_data_set() -> None:
    subject = Subject(CIFAR.blocks[1], "cifar100", "cifar100-c")
    planned = experiments_of(subject, CIFAR.methods, [200], [1], None)
    chosen = {method: dict(several[0].hyperparameters) for (method, _), several in planned.items()}
    assert {method for method, hyperparameters in chosen.items() if hyperparameters} == {
        "cotta",
        "eta",
    }
    assert chosen["cotta"] == {"preset": "cifar100_c"}
