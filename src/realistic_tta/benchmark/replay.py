"""Small batches that share a forward: `rtta bench --replay`.

runner.py takes from here which batches go together. methods/replay.py predicts them, each as if
those before it had come first. replayable.py says which experiments can be run so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import torch

from realistic_tta.benchmark.stream import StreamBatch
from realistic_tta.methods.base import AdaptedModel
from realistic_tta.methods.replay import replay

from .metrics import Tally

TOGETHER = 64  # images in one forward, at most, unless a batch has more


def chunks(batches: Iterable[StreamBatch], images: int) -> Iterator[list[StreamBatch]]:
    """Batches that may go together, in order: so many images at most, no reset but at the first.

    A batch that is larger by itself comes alone; with images=0 every one does.
    """
    chunk: list[StreamBatch] = []
    seen = 0
    for batch in batches:
        if chunk and (batch.reset or seen + len(batch.labels) > images):
            yield chunk
            chunk, seen = [], 0
        chunk.append(batch)
        seen += len(batch.labels)
        if seen >= images:  # not held back until the next is read
            yield chunk
            chunk, seen = [], 0
    if chunk:
        yield chunk


def see_together(adapted: AdaptedModel, chunk: Sequence[StreamBatch], tally: Tally) -> None:
    """Predicts the batches in one forward, and counts each."""
    images = torch.cat([batch.images for batch in chunk]).to(adapted.step.device)
    sizes = [len(batch.labels) for batch in chunk]
    start = time.perf_counter()
    outputs = replay(adapted, images, sizes).outputs.cpu()
    tally.method_seconds += time.perf_counter() - start
    tally.replayed += len(chunk)
    for batch, few in zip(chunk, outputs.split(sizes), strict=True):
        tally.see(batch.parts, batch.labels, few)
