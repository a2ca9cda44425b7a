"""Adapts a model of a table: measurements from another laboratory.

    python examples/tabular.py

The data are the 569 breast-cancer biopsies of scikit-learn, 30 measurements each. A small model
with BatchNorm1d is trained on half of them. The other half comes from laboratories whose
instruments are calibrated otherwise: every measurement has another gain and offset there. Rows
arrive one by one or in batches, without labels.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.nn import functional

import realistic_tta

TRAINING_BATCH = 32


def load() -> tuple[Tensor, Tensor]:
    """Return the standardized measurements, (row, 30), and the labels, shuffled once."""
    table = load_breast_cancer()
    order = torch.randperm(len(table.target), generator=torch.Generator().manual_seed(0))
    rows = torch.from_numpy(table.data).float()[order]
    half = rows[: len(rows) // 2]
    return (rows - half.mean(dim=0)) / half.std(dim=0), torch.from_numpy(table.target)[order]


def trained(rows: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Return a small model, trained on clean rows."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(30, 32), nn.BatchNorm1d(32), nn.ReLU()),
        *(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()),
        nn.Linear(32, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows)).split(TRAINING_BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(rows[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


def laboratory(rows: Tensor, seed: int) -> Tensor:
    """Return the rows as measured by other instruments: each column has a gain and an offset."""
    generator = torch.Generator().manual_seed(seed)
    gain = torch.empty(30).uniform_(0.5, 2, generator=generator)
    return rows * gain + torch.randn(30, generator=generator)


def error(model: nn.Module, rows: Tensor, labels: Tensor, batch_size: int) -> float:
    """Return the error in percent over a stream of batches."""
    with torch.no_grad():
        predicted = torch.cat([model(batch).argmax(dim=1) for batch in rows.split(batch_size)])
    return 100 * (predicted != labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Adapt a model of a table.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--laboratories", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    rows, labels = load()
    half = len(rows) // 2
    model = trained(rows[:half], labels[:half], arguments.epochs)
    rows, labels = rows[half:], labels[half:]
    print(
        f"error on {len(rows)} rows of the same laboratory: {error(model, rows, labels, 32):.1f} %"
    )
    print(f"error on the same rows of {arguments.laboratories} others, adapted to each:\n")
    print(f"{'batch size':12}{'source':>11}{'realistic':>11}")
    for batch_size in (32, 1):
        errors: dict[str, list[float]] = {"source": [], "realistic": []}
        for seed in range(arguments.laboratories):
            measured = laboratory(rows, seed)
            for method, found in errors.items():
                source = method == "source"
                options: dict[str, Any] = {} if source else {"source_batch_size": TRAINING_BATCH}
                adapted = realistic_tta.adapt(model, method, **options)
                found.append(error(adapted, measured, labels, batch_size))
        means = (sum(found) / len(found) for found in errors.values())
        print(f"{batch_size:<12}" + "".join(f"{mean:>11.1f}" for mean in means))


if __name__ == "__main__":
    main()
