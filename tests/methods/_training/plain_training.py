"""Methods that train, written as plain torch programs: what ours is compared with.

Networks in eval mode but for their BatchNorms, torch's own optimizers, weights changed in place.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn


def sure(model: nn.Module, factor: float = 20.0) -> nn.Module:
    """The same model with larger logits, so that some of its predictions are reliable."""
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.weight *= factor
        last.weight -= last.weight.mean(dim=0)
    return model


def prepared(model: nn.Module) -> tuple[nn.Module, list[Tensor]]:
    """A copy on batch statistics, and the parameters of its BatchNorms."""
    model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    trained: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
            trained += [own.requires_grad_() for own in module.parameters()]
    return model, trained


def entropies(logits: Tensor) -> Tensor:
    found: Tensor = torch.distributions.Categorical(logits=logits).entropy()
    return found


def tent(
    model: nn.Module, batches: list[Tensor], kind: type[torch.optim.Optimizer], **settings: object
) -> list[Tensor]:
    model, trained = prepared(model)
    optimizer = kind(trained, **settings)  # type: ignore[arg-type]
    predictions = []
    for batch in batches:
        logits = model(batch)
        optimizer.zero_grad()
        entropies(logits).mean().backward()
        optimizer.step()
        predictions.append(logits.detach())
    return predictions


def eta(model: nn.Module, batches: list[Tensor], margin: float) -> tuple[list[Tensor], list[int]]:
    """Predictions, and how many images each batch was learned from."""
    model, trained = prepared(model)
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    running: Tensor | None = None
    predictions, counts = [], []
    for batch in batches:
        logits = model(batch)
        limit = 0.4 * math.log(logits.shape[1])
        losses, kept = [], []
        for row, own in zip(logits, entropies(logits), strict=True):
            p = row.detach().softmax(dim=0)
            if own.item() >= limit:
                continue
            if running is not None:
                cosine = torch.dot(p, running) / (p.norm() * running.norm())
                if abs(cosine.item()) >= margin:
                    continue
            losses.append(own / math.exp(own.item() - limit))
            kept.append(p)
        if losses:
            optimizer.zero_grad()
            (sum(losses, torch.zeros(())) / len(losses)).backward()
            optimizer.step()
            mean = torch.stack(kept).mean(dim=0)
            running = mean if running is None else 0.9 * running + 0.1 * mean
        predictions.append(logits.detach())
        counts.append(len(losses))
    return predictions, counts


def sar(
    model: nn.Module, batches: list[Tensor], recover_below: float
) -> tuple[list[Tensor], list[str]]:
    """Predictions, and what was done with each batch: "none", "step" or "recover"."""
    source, _ = prepared(model)
    model, trained = prepared(model)
    optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
    running: float | None = None
    predictions, done = [], []
    for batch in batches:
        logits = model(batch)
        predictions.append(logits.detach())
        done.append("none")
        limit = 0.4 * math.log(logits.shape[1])
        first = entropies(logits)
        reliable = first < limit
        if not reliable.any():
            continue
        gradients = torch.autograd.grad(first[reliable].mean(), trained)
        length = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        before = [own.detach().clone() for own in trained]
        with torch.no_grad():
            for own, gradient in zip(trained, gradients, strict=True):
                own.add_(gradient, alpha=0.05 / length)
        second = entropies(model(batch))[reliable]
        second = second[second < limit]
        optimizer.zero_grad()
        loss = second.mean() if len(second) else None
        if loss is not None:
            loss.backward()
        with torch.no_grad():
            for own, old in zip(trained, before, strict=True):
                own.copy_(old)
        if loss is None:
            continue
        optimizer.step()
        done[-1] = "step"
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if running < recover_below:
            model.load_state_dict(source.state_dict())
            optimizer = torch.optim.SGD(trained, lr=1e-3, momentum=0.9)
            running = None
            done[-1] = "recover"
    return predictions, done
