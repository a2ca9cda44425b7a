"""Methods of several passes a batch: interrupted after any of them, nothing has changed."""

from __future__ import annotations

import pytest
from subjects import convolutional, images, interrupted_after, same, snapshot

from realistic_tta import adapt


@pytest.mark.parametrize("passes", range(5))
@pytest.mark.parametrize(
    ("method", "settings"), [("cotta", {"views": 3}), ("adacontrast", {"queue_size": 9})]
)
def test_a_failure_in_any_pass_changes_nothing(
    method: str, settings: dict[str, object], passes: int
) -> None:
    adapted = adapt(convolutional(), method, **settings)  # type: ignore[arg-type]
    adapted(images(4))
    before = snapshot(adapted)
    with interrupted_after(passes, adapted.network), pytest.raises(KeyboardInterrupt):
        adapted(images(4, seed=1))
    assert same(before, snapshot(adapted))
    adapted(images(4, seed=1))
    assert not same(before, snapshot(adapted))
