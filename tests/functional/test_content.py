from __future__ import annotations

import numpy as np
import torch

from realistic_tta.functional.content import Content, learn_content, scatter_of, whiten, whitening

FEATURES, PARTS = 24, 4
ONE = torch.tensor(1.0)
NONE = Content(torch.zeros(FEATURES, FEATURES), torch.zeros(()))


def test_content_is_the_scatter_of_parts_about_their_image() -> None:
    parts = torch.randn(15, PARTS, FEATURES, generator=torch.Generator().manual_seed(0))
    state = NONE
    for batch in parts.split([4, 1, 10]):
        state = learn_content(state, scatter_of(batch), len(batch), ONE)
    expected = sum(np.cov(image.double().numpy().T) for image in parts)
    np.testing.assert_allclose(state.scatter.numpy(), expected, rtol=1e-4, atol=1e-3)
    assert state.images == 15


def test_after_many_images_whitening_is_that_of_the_whole_covariance() -> None:
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(FEATURES, FEATURES, generator=generator))[0]
    parts = torch.randn(4000, PARTS, FEATURES, generator=generator) @ (turn * 3)
    factor = whitening(learn_content(NONE, scatter_of(parts), len(parts), ONE), PARTS)
    torch.testing.assert_close(factor @ factor.T, 9.0 * torch.eye(FEATURES), atol=0.5, rtol=0.03)
    white = whiten(parts.flatten(0, 1), factor)
    torch.testing.assert_close(white.T.cov(), torch.eye(FEATURES), atol=0.1, rtol=0)
