"""smooth_labels=True: uses the images around an image, where labels come in runs.

For streams such as a camera that shows one scene for a while. On other streams predictions stay
nearly as they are. Each prediction then depends on its neighbors, so accuracy on a data set that is
sorted by label is not comparable with other methods'.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from realistic_tta.core.adapted_model import Prediction, State, Wrapper
from realistic_tta.core.batch import Batch
from realistic_tta.core.outputs import find_logits, replace_logits, widen
from realistic_tta.core.settings import Settings
from realistic_tta.functional.label_hmm import LabelHMM, smooth


@dataclass(frozen=True)
class Smoothing(Settings):
    """smooth_labels has no hyperparameters."""


class SmoothLabels(Wrapper):
    """Replaces the logits by the log-posterior of a hidden Markov model of the labels.

    State: the tensors of functional/label_hmm.py.
    """

    name = "smooth_labels"
    settings_type = Smoothing

    def _initial_state(self) -> State:
        # The number of classes follows from the first batch; until then it is one.
        return LabelHMM.start(1, torch.zeros(0, device=self._device))._asdict()

    def _resizable(self) -> set[str]:
        return {*LabelHMM._fields, *super()._resizable()}

    def _predict(self, batch: Batch) -> Prediction:
        prediction = self._inner._predict(batch)
        logits = widen(find_logits(prediction.outputs))
        state = self._state()
        hmm = LabelHMM(*(state[name] for name in LabelHMM._fields))
        if hmm.counts.shape[-1] != logits.shape[1]:
            hmm = LabelHMM.start(logits.shape[1], logits)
        smoothed, after = smooth(hmm, logits)
        return self._with(
            prediction, replace_logits(prediction.outputs, smoothed), **after._asdict()
        )
