"""A hidden Markov model of the labels of a stream, for streams whose labels come in runs.

The label of an image equals the one before with probability `p_stay`; otherwise a new run begins
and its label is drawn from the class shares. The posterior of each label follows from the model's
predictions:

    posterior = prediction / shares * (p_stay * posterior before + (1 - p_stay) * shares) / total

The scale of the logits is not used. Predictions are the softmax at several temperatures, chosen so
that a typical image of the stream is predicted with the probabilities CONFIDENCE. Each temperature
is followed with each p_stay. Bayes' rule weighs these hypotheses by `total`, the probability of the
next image relative to a stream in random order. Two hypotheses without runs compete with them and
keep the prediction as it is: class shares are constant, or they drift. Used by
wrappers/smooth_labels.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

CONFIDENCE = (0.6, 0.8, 0.95)  # of a typical prediction: one wrong in 2.5, 5 and 20 images
P_STAY = (0.0, 0.0, 0.2, 0.5, 0.8, 0.95)  # constant and drifting shares, runs of up to 20 images
PRIOR_OF_RUNS = 0.0001  # probability of all p_stay above 0 before the first image
HAZARD = 0.001  # probability, per image, that the order of the labels changes
PSEUDO_COUNT = 3.0  # runs per class that equal class shares are worth at the start
RECENT = 0.05  # weight of an image in shares that drift: as fast as the longest runs, 1 - 0.95
TINY = 1e-30


class LabelHMM(NamedTuple):
    """The state of the filter after an image.

    gap: largest logit minus mean logit, summed over the images. images: how many there were.
    p_model: probability of each hypothesis, (confidence, p_stay, 1).
    posterior: of the last label, for each of them, (confidence, p_stay, class).
    counts: predictions summed over runs, (confidence, 1, class).
    recent: mean prediction of the last images, (confidence, 1, class).
    """

    gap: Tensor
    images: Tensor
    p_model: Tensor
    posterior: Tensor
    counts: Tensor
    recent: Tensor

    @classmethod
    def start(cls, classes: int, like: Tensor) -> LabelHMM:
        """Before the first image; device and dtype are those of `like`."""
        equal = like.new_full((len(CONFIDENCE), len(P_STAY), classes), 1 / classes)
        recent = equal[:, :1].clone()
        counts = torch.full_like(recent, PSEUDO_COUNT)
        return cls(like.new_zeros(1), like.new_zeros(1), _prior(like), equal, counts, recent)


class _Step(NamedTuple):
    """One image on the way forward, for the way back; shapes as in LabelHMM."""

    posterior: Tensor
    likelihood: Tensor
    restart: Tensor
    total: Tensor


def smooth(hmm: LabelHMM, logits: Tensor) -> tuple[Tensor, LabelHMM]:
    """Log-posterior of each label given all images of the batch and before, and the next state.

    logits: (image, class), in the order of the stream. The result is at their temperature: without
    runs it is nearly their log-softmax, and it changes in proportion to them.
    """
    images = hmm.images + len(logits)
    gap = hmm.gap + (logits.amax(dim=1) - logits.mean(dim=1)).sum()
    temperatures = (gap / images).clamp_min(TINY) / _log_odds(logits)  # (confidence,)
    scaled = logits[:, None, None] / temperatures[:, None, None]
    predictions = scaled.softmax(dim=3).clamp_min(TINY)  # (image, confidence, 1, class)
    p_stay = logits.new_tensor(P_STAY)[:, None]
    steps, after = _forward(hmm._replace(gap=gap, images=images), predictions, p_stay)
    smoothed = _backward(steps, p_stay)  # (image, confidence, p_stay, class)
    smoothed = torch.where(p_stay > 0, smoothed, predictions)
    mixed = after.p_model.flatten() @ smoothed.flatten(1, 2)  # (image, class)
    temperature = after.p_model.sum(dim=(1, 2)) @ temperatures
    return (temperature * mixed.clamp_min(TINY).log()).log_softmax(dim=1), after


def _forward(hmm: LabelHMM, predictions: Tensor, p_stay: Tensor) -> tuple[list[_Step], LabelHMM]:
    """Each label given the images before it."""
    gap, images, p_model, posterior, counts, recent = hmm
    prior, p_restart = _prior(p_model), 1 - p_stay
    steps = []
    for prediction in predictions.unbind():
        shares = counts / counts.sum(dim=2, keepdim=True)
        restart = torch.cat((shares, recent, *[shares] * (len(P_STAY) - 2)), dim=1)
        likelihood = prediction / shares
        joint = likelihood * torch.lerp(restart, posterior, p_stay)
        total = joint.sum(dim=2, keepdim=True)
        posterior = joint / total
        p_model = p_model * total
        p_model = torch.lerp(p_model / p_model.sum(), prior, HAZARD)
        counts = torch.addcmul(counts, (p_model * p_restart).sum(), prediction)
        recent = torch.lerp(recent, prediction, RECENT)
        steps.append(_Step(posterior, likelihood, restart, total))
    return steps, LabelHMM(gap, images, p_model, posterior, counts, recent)


def _backward(steps: list[_Step], p_stay: Tensor) -> Tensor:
    """Each label given the images after it, too; (image, confidence, p_stay, class)."""
    messages = [torch.ones_like(steps[-1].posterior)]
    for step in steps[:0:-1]:
        weighted = step.likelihood * messages[-1]
        restart = (step.restart * weighted).sum(dim=2, keepdim=True)
        messages.append(torch.lerp(restart, weighted, p_stay) / step.total)
    return torch.stack([step.posterior for step in steps]) * torch.stack(messages[::-1])


def _log_odds(like: Tensor) -> Tensor:
    """The logit above all others at which a class has each probability of CONFIDENCE."""
    others = max(like.shape[1] - 1, 1)
    return like.new_tensor([math.log(p / (1 - p) * others) for p in CONFIDENCE])


def _prior(like: Tensor) -> Tensor:
    runs = len(P_STAY) - 2
    p_stay = [(1 - PRIOR_OF_RUNS) / 2] * 2 + [PRIOR_OF_RUNS / runs] * runs
    return like.new_tensor([[[p / len(CONFIDENCE)] for p in p_stay]] * len(CONFIDENCE))
