from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from realistic_tta import ModelError
from realistic_tta.core.outputs import (
    find_logits,
    map_tensors,
    mean_outputs,
    replace_logits,
    tensors_in,
    without_gradient,
)

Pair = namedtuple("Pair", ["first", "second"])  # noqa: PYI024 - as models return them


@dataclass
class Output:
    logits: Tensor
    note: str = "text"


LOGITS = torch.ones(2, 3, requires_grad=True) * 1

FORMS: dict[str, Any] = {
    "tensor": LOGITS,
    "tuple": (LOGITS, 1),
    "named tuple": Pair(LOGITS, "x"),
    "list": [None, LOGITS],
    "mapping": OrderedDict(loss=torch.zeros(()), logits=LOGITS),
    "object": Output(LOGITS),
    "torch's own": torch.max(LOGITS.unsqueeze(0), dim=0),
}


@pytest.mark.parametrize("form", FORMS)
def test_tensors_are_replaced_and_the_form_is_kept(form: str) -> None:
    value = FORMS[form]
    changed = map_tensors(without_gradient, value)
    assert type(changed) is type(value)
    assert [t.shape for t in tensors_in(changed)] == [t.shape for t in tensors_in(value)]
    assert not any(tensor.requires_grad for tensor in tensors_in(changed))
    assert any(tensor.requires_grad for tensor in tensors_in(value))
    assert torch.equal(find_logits(changed), LOGITS)


def test_a_value_without_anything_to_replace_is_the_same_object() -> None:
    """A cache that the caller passes in must be the one that is written to."""
    value = {"images": torch.ones(2), "cache": Output(torch.ones(2, 2)), "size": torch.Size([2])}
    assert map_tensors(without_gradient, value) is value


def test_an_object_that_contains_itself_ends() -> None:
    output = Output(LOGITS)
    output.note = output  # type: ignore[assignment]
    assert find_logits(output) is LOGITS
    assert not map_tensors(without_gradient, output).logits.requires_grad


def test_an_image_is_not_taken_for_logits() -> None:
    images = torch.ones(2, 3, 4, 4)
    assert find_logits({"images": images, "labels": torch.ones(2, 1).long(), "z": LOGITS}) is LOGITS
    with pytest.raises(ModelError, match=r"a dict with \(2, 3, 4, 4\); expected logits"):
        find_logits({"images": images})


def test_the_mean_is_taken_tensor_by_tensor() -> None:
    outputs: list[dict[str, Any]] = [
        {
            "logits": torch.full((2, 3), float(n)),
            "more": [torch.tensor([n, -n]).float(), "x"],
            "n": n,
        }
        for n in range(4)
    ]
    found = mean_outputs(iter(outputs))
    assert torch.equal(found["logits"], torch.full((2, 3), 1.5))
    assert torch.equal(found["more"][0], torch.tensor([1.5, -1.5]))
    assert found["more"][1] == "x"
    assert found["n"] == 3  # the last
    assert torch.equal(outputs[3]["logits"], torch.full((2, 3), 3.0))


def test_half_precision_is_averaged_in_float32_and_integers_are_kept() -> None:
    found = mean_outputs([(torch.full((1,), 60000.0).half(), torch.tensor(n)) for n in (1, 2)])
    assert found[0].dtype == torch.float16
    assert found[0].item() == torch.tensor(60000.0).half().item()
    assert found[1].item() == 2


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_replaced_in_place_and_type(form: str) -> None:
    value = FORMS[form]
    changed = replace_logits(value, torch.zeros(2, 3, dtype=torch.float64))
    assert type(changed) is type(value)
    assert torch.equal(find_logits(changed), torch.zeros(2, 3))
    assert find_logits(changed).dtype == LOGITS.dtype
    assert torch.equal(find_logits(value), LOGITS)
