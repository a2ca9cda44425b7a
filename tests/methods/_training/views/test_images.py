from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from realistic_tta import InputError, adapt
from realistic_tta.core.batch import Batch
from realistic_tta.methods._training.views.images import view_images

IMAGES, OTHERS, SHIFT = torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4), torch.rand(2, 5)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((IMAGES,), {}), ((IMAGES, SHIFT), {"x": 1}), (("x", IMAGES), {}), ((1,), {"images": IMAGES})],
    ids=["first", "first of two", "second", "keyword"],
)
def test_the_images_are_found_and_exchanged_alone(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    batch = Batch(args, kwargs, 2)
    assert view_images(batch) is IMAGES
    changed = batch.with_images(OTHERS)
    assert view_images(changed) is OTHERS
    assert view_images(batch) is IMAGES
    before, after = [*args, *kwargs.values()], [*changed.args, *changed.kwargs.values()]
    assert sum(a is not b for a, b in zip(before, after, strict=True)) == 1


def test_images_inside_a_list_are_refused_and_the_message_says_how_to_pass_them() -> None:
    class Lists(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(48, 5)

        def forward(self, batch: list[Tensor]) -> Tensor:
            logits: Tensor = self.head(torch.stack(batch).flatten(1))
            return logits

    with pytest.raises(InputError, match=r"inside another argument .* as one tensor"):
        adapt(Lists(), "cotta")(list(IMAGES))
