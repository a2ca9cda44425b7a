from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from published import Pixels, write_row_sheets

from realistic_tta import adapt
from realistic_tta.cli.main import main
from realistic_tta.data.registry import CORRUPTIONS
from realistic_tta.models.checkpoints import load_model


def shaded() -> tuple[Pixels, list[int]]:
    """256 images, the class told by the shade."""
    labels = np.arange(256) % 10
    noise = np.random.default_rng(0).integers(0, 12, (256, 32, 32, 3))
    return (noise + 24 * labels[:, None, None, None]).astype(np.uint8), labels.tolist()


def test_training_ends_with_a_network_and_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted in between, resumed by the same words; loaded by name, and adapted."""
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "dataset"))
    source = write_row_sheets(tmp_path / "sheets", *shaded())
    words = ["train", "--arch", "resnet-20", "--epochs", "4", "--source", str(source)]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "training resnet-20, 256 images, 4 epochs" in printed.err
    assert "epoch 4 of 4: loss" in printed.err
    assert "% error on clean test images" in printed.out
    folder = tmp_path / "dataset" / "models"
    card = json.loads((folder / "resnet-20.json").read_text())
    assert card["source_batch_size"] == 128
    assert set(card["error_by_corruption"]) == set(CORRUPTIONS)
    assert card["recipe"]["epochs"] == 4
    model = load_model("resnet-20")
    assert torch.isfinite(adapt(model)(torch.rand(4, 3, 32, 32))).all()
    assert main(words) == 0  # nothing left to train: the same model again
    printed = capsys.readouterr()
    assert "resuming from" in printed.err
    assert "epoch 4 of 4" not in printed.err
    again = load_model("resnet-20").state_dict()
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())


def test_options_reach_the_recipe_and_the_name_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "dataset"))
    source = write_row_sheets(tmp_path / "sheets", *shaded())
    words = ["train", "--epochs", "4", "--early-side", "16", "--source", str(source)]
    words += ["--out", str(tmp_path), "--name", "hard"]
    assert main([*words, "--label-smoothing", "0", "--bn-momentum", "0.5"]) == 0
    recipe = json.loads((tmp_path / "hard.json").read_text())["recipe"]
    assert (recipe["label_smoothing"], recipe["bn_momentum"], recipe["early_side"]) == (0, 0.5, 16)
    assert (tmp_path / "hard.safetensors").exists()
    for wrong in ("2", "nan", "half"):
        assert main([*words, "--label-smoothing", wrong]) == 2
        assert f'"{wrong}"; expected a number from 0 to 1' in capsys.readouterr().err


def test_an_unknown_network_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RTTA_DATA", str(tmp_path / "dataset"))
    source = write_row_sheets(tmp_path / "sheets", *shaded())
    assert main(["train", "--arch", "resnet20", "--source", str(source)]) == 2
    assert 'did you mean "resnet-20"' in capsys.readouterr().err
