"""A hidden Markov model of the labels of a stream, for streams whose labels come in runs.

The label of an image equals the one before with probability `p_stay`; otherwise its label is drawn
from the class shares. The posterior of each label follows from the model's predictions:

    posterior = prediction / shares * (p_stay * posterior before + (1 - p_stay) * shares) / total

Several values of p_stay are followed at once, among them 0, for which the posterior is the
prediction itself. Their probabilities follow by Bayes' rule from how well each predicts the next
image, so that labels in random order are left alone. Used by wrappers/smooth_labels.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

P_STAY = (0.0, 0.5, 0.8, 0.95)  # random order, and runs of 2, 5 and 20 images on average
PRIOR_OF_RUNS = 0.001  # probability of all p_stay above 0 before the first image
HAZARD = 0.001  # probability, per image, that the order of the labels changes
PSEUDO_COUNT = 10.0  # images that equal class shares are worth at the start
TINY = 1e-30


class LabelHMM(NamedTuple):
    """The state of the filter after an image.

    p_model: probability of each value of P_STAY, (model,).
    posterior: of the last label, for each of them, (model, class).
    counts: how many runs of each class were seen, (class,).
    """

    p_model: Tensor
    posterior: Tensor
    counts: Tensor

    @classmethod
    def start(cls, classes: int, like: Tensor) -> LabelHMM:
        """Before the first image; device and dtype are those of `like`."""
        equal = like.new_full((len(P_STAY), classes), 1 / classes)
        return cls(_prior(like), equal, equal[0] * PSEUDO_COUNT)


def smooth(hmm: LabelHMM, predictions: Tensor) -> tuple[Tensor, LabelHMM]:
    """The posterior of each label given all images of the batch and before, and the next state.

    predictions: probabilities, (image, class), in the order of the stream.
    """
    p_stay = predictions.new_tensor(P_STAY)[:, None]  # (model, 1)
    shares = hmm.counts / hmm.counts.sum()
    likelihoods = predictions / (shares + TINY)  # (image, class)
    posterior, counts, evidence = hmm.posterior, hmm.counts, torch.zeros_like(hmm.p_model)
    filtered, totals = [], []
    for likelihood in likelihoods:
        joint = likelihood * (p_stay * posterior + (1 - p_stay) * shares)  # (model, class)
        total = joint.sum(dim=1, keepdim=True) + TINY
        posterior = joint / total
        new_run = (1 - p_stay[-1]) * (shares * likelihood).sum() / total[-1]
        counts = counts + new_run * posterior[-1]
        evidence = evidence + total[:, 0].log()
        filtered.append(posterior)
        totals.append(total)
    p_model = torch.softmax((hmm.p_model + TINY).log() + evidence, dim=0)
    smoothed = torch.stack(_backward(filtered, totals, likelihoods, p_stay, shares))
    mixed = (p_model[:, None] * smoothed).sum(dim=1)  # (image, class)
    kept = (1 - HAZARD) ** len(predictions)
    after = kept * p_model + (1 - kept) * _prior(p_model)
    return mixed / mixed.sum(dim=1, keepdim=True), LabelHMM(after, posterior, counts)


def _backward(
    filtered: list[Tensor],
    totals: list[Tensor],
    likelihoods: Tensor,
    p_stay: Tensor,
    shares: Tensor,
) -> list[Tensor]:
    """The filtered posteriors with the images after each taken into account, (model, class)."""
    message = torch.ones_like(filtered[-1])
    smoothed = []
    for posterior, total, likelihood in zip(
        reversed(filtered), reversed(totals), reversed(likelihoods.unbind()), strict=True
    ):
        product = posterior * message
        smoothed.append(product / (product.sum(dim=1, keepdim=True) + TINY))
        weighted = likelihood * message
        restart = (shares * weighted).sum(dim=1, keepdim=True)
        message = (p_stay * weighted + (1 - p_stay) * restart) / total
    return smoothed[::-1]


def _prior(like: Tensor) -> Tensor:
    runs = len(P_STAY) - 1
    return like.new_tensor([1 - PRIOR_OF_RUNS, *[PRIOR_OF_RUNS / runs] * runs])
