from __future__ import annotations

from typing import Any

import torch

from realistic_tta.methods.outputs import mean_outputs


def test_the_mean_is_taken_tensor_by_tensor_wherever_they_are() -> None:
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


def test_halves_are_added_up_in_float32_and_whole_numbers_are_left_alone() -> None:
    found = mean_outputs([(torch.full((1,), 60000.0).half(), torch.tensor(n)) for n in (1, 2)])
    assert found[0].dtype == torch.float16
    assert found[0].item() == torch.tensor(60000.0).half().item()
    assert found[1].item() == 2
