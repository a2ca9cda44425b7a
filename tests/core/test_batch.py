"""The images of a call are found wherever they are, and checked before anything is computed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from realistic_tta import InputError, NonFiniteError
from realistic_tta.core.batch import Batch

MODEL = nn.Linear(2, 2)


def batch_of(*args: Any, **kwargs: Any) -> Batch:
    return Batch.of(args, kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "size"),
    [
        ((torch.zeros(4, 3, 2, 2),), {}, 4),
        (("text", torch.zeros(3, 2)), {}, 3),
        ((), {"flag": True, "images": torch.zeros(5, 1)}, 5),
        (({"image": torch.zeros(2, 3), "shift": torch.zeros(2)},), {}, 2),
        (([torch.zeros(3, 8, 8), torch.zeros(3, 4, 4)],), {}, 2),  # one image per entry
        (([torch.zeros(6, 3, 8, 8), torch.zeros(6, 3, 4, 4)],), {}, 6),  # two scales of one batch
        (((torch.zeros(7, 3, 8, 8), 1.0),), {}, 7),
    ],
)
def test_the_images_are_found_and_counted(
    args: tuple[Any, ...], kwargs: dict[str, Any], size: int
) -> None:
    batch = batch_of(*args, **kwargs)
    assert batch.size == size
    batch.check(MODEL)


def test_arguments_without_images_are_named() -> None:
    with pytest.raises(InputError, match=r'no tensor among the arguments \(argument 1, argument "'):
        batch_of("text", number=3)
    with pytest.raises(InputError, match=r"no tensor among the arguments \(none\)"):
        batch_of()


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 1, 2, 2)])
def test_images_with_nan_are_named_by_their_place(shape: tuple[int, ...]) -> None:
    images = torch.zeros(shape)
    images[1] = math.nan
    with pytest.raises(NonFiniteError, match=r"argument 1 holds NaN or Inf in 1 of 3 .*\[1\]"):
        batch_of(images).check(MODEL)
    assert batch_of(images).finite_samples().tolist() == [True, False, True]


def test_values_whose_sum_overflows_are_finite() -> None:
    images = torch.full((4, 8), 3e38)
    batch_of(images).check(MODEL)
    assert not batch_of(images).finite_samples().any()  # their squares overflow


def test_integers_are_refused_unless_the_model_has_embeddings() -> None:
    words = torch.zeros(4, 3, dtype=torch.int64)
    with pytest.raises(InputError, match=r"int64, shape \(4, 3\); expected floating-point"):
        batch_of(words).check(MODEL)
    batch_of(words).check(nn.Sequential(nn.Embedding(3, 2)))


def test_samples_are_selected_in_every_argument() -> None:
    which = torch.tensor([True, False, True])
    batch = batch_of(
        {"image": torch.arange(3.0)[:, None], "size": 7},
        [torch.zeros(3, 8, 8), torch.ones(3, 8, 8), torch.zeros(3, 8, 8)],
        weight=torch.arange(3.0),
        scale=torch.tensor(2.0),
    ).select(which)
    assert batch.size == 2
    assert batch.args[0]["image"].flatten().tolist() == [0, 2]
    assert batch.args[0]["size"] == 7
    assert len(batch.args[1]) == 2
    assert batch.kwargs["weight"].tolist() == [0, 2]
    assert batch.kwargs["scale"].item() == 2


@pytest.mark.parametrize("place", ["position", "keyword"])
def test_images_are_replaced_where_they_were(place: str) -> None:
    images, other = torch.zeros(2, 3, 4, 4), torch.ones(2, 3, 4, 4)
    batch = batch_of("a", images, 1) if place == "position" else batch_of("a", images=images)
    assert batch.image_tensor() is images
    replaced = batch.with_images(other)
    found: Tensor = replaced.args[1] if place == "position" else replaced.kwargs["images"]
    assert found is other
    assert replaced.args[0] == "a"
    assert batch.image_tensor() is images
    with pytest.raises(InputError, match="inside another argument"):
        batch_of({"image": images}).image_tensor()
