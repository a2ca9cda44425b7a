"""torch.compile: one graph a batch, equal results, a word where it cannot be had."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from subjects import convolutional
from torch import Tensor, nn

import realistic_tta
from realistic_tta.errors import InputError, SettingError
from realistic_tta.methods import compiled as compiled_module
from realistic_tta.methods.base import AdaptedModel

COMPILED = [name for name, method in realistic_tta.METHODS.items() if method.compiles]


def batches(count: int, size: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(size, 3, 8, 8, generator=generator) + 0.5 for _ in range(count)]


def assert_equal_states(one: AdaptedModel, other: AdaptedModel) -> None:
    mine, others = one.state_dict(), other.state_dict()
    for name, value in mine.items():
        torch.testing.assert_close(value, others[name], rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize(("name", "size"), [*((name, 6) for name in COMPILED), ("realistic", 2)])
def test_one_graph_without_breaks_and_the_same_for_every_batch(name: str, size: int) -> None:
    """fullgraph raises at a break, error_on_recompile at a second graph.

    Two images are looked at in the mirror by realistic.
    """
    torch._dynamo.reset()
    eager = realistic_tta.adapt(convolutional(), name)
    adapted = realistic_tta.adapt(convolutional(), name)
    compiled = torch.compile(adapted, backend="aot_eager", fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in batches(4, size):
            torch.testing.assert_close(compiled(batch), eager(batch), rtol=1e-5, atol=1e-6)
    assert_equal_states(adapted, eager)


@pytest.mark.parametrize("method", ["rectified_tema", "realistic"])
def test_the_compiled_method_is_the_method(method: str) -> None:
    """With the real compiler; the first batch of a shape runs uncompiled, the others do not."""
    torch._dynamo.reset()
    eager = realistic_tta.adapt(convolutional(), method)
    compiled = realistic_tta.adapt(convolutional(), method, compile=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        for batch in [*batches(3), *batches(1, size=2)]:
            torch.testing.assert_close(compiled(batch), eager(batch), rtol=1e-4, atol=1e-5)
    assert compiled.compiled is not None
    assert compiled.compiled.graph is not None
    assert compiled.compiled.works
    assert_equal_states(compiled, eager)
    assert int(compiled.step) == 4


def quick(**settings: object) -> AdaptedModel:
    """A compiled method that skips the C++ compiler, its graphs ready for batches of 6."""
    torch._dynamo.reset()
    adapted = realistic_tta.adapt(convolutional(), "rectified_tema", compile=True, **settings)  # type: ignore[arg-type]
    assert adapted.compiled is not None
    adapted.compiled.backend = "aot_eager"
    for batch in batches(2):
        adapted(batch)
    return adapted


class Overflowing(nn.Module):
    """Finite images, Inf inside, when they are large."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = convolutional()

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.rest(images.exp())
        return outputs


def test_an_overflow_inside_a_graph_is_found_and_changes_nothing() -> None:
    torch._dynamo.reset()
    adapted = realistic_tta.adapt(
        Overflowing(), "rectified_tema", compile=True, on_bad_input="raise"
    )
    assert adapted.compiled is not None
    adapted.compiled.backend = "aot_eager"
    for batch in batches(2):
        adapted(batch)
    before = copy.deepcopy(adapted.state_dict())
    with pytest.raises(InputError, match=r"overflow inside the network.*No statistic was changed"):
        adapted(batches(1)[0] + 200)
    assert all(torch.equal(value, before[name]) for name, value in adapted.state_dict().items())
    with pytest.raises(InputError, match="NaN or Inf in 1 of 6 images"):
        adapted(torch.cat([batches(1)[0][:5], torch.full((1, 3, 8, 8), torch.nan)]))
    assert all(torch.equal(value, before[name]) for name, value in adapted.state_dict().items())


def test_copies_and_pickles_compile_anew() -> None:
    adapted = quick()
    for other in (copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted))):  # noqa: S301
        assert other.compiled is not None
        assert other.compiled.graph is None
        torch.testing.assert_close(other(batches(3)[2]), copy.deepcopy(adapted)(batches(3)[2]))


def test_more_shapes_than_are_compiled_run_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_module, "MOST_SHAPES", 2)
    adapted, eager = quick(), realistic_tta.adapt(convolutional(), "rectified_tema")
    for batch in batches(2):
        eager(batch)
    for size in (2, 3, 4, 2, 3, 4):
        (batch,) = batches(1, size)
        torch.testing.assert_close(adapted(batch), eager(batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_and_channels_last(layout: torch.memory_format, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    adapted = realistic_tta.adapt(convolutional(), "rectified_tema", compile=True)
    eager = realistic_tta.adapt(convolutional(), "rectified_tema")
    assert adapted.compiled is not None
    adapted.compiled.backend = "aot_eager"
    with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
        for batch in batches(3):
            images = batch.to(memory_format=layout)
            torch.testing.assert_close(adapted(images), eager(images), rtol=2e-2, atol=2e-2)
    assert adapted.compiled.works


def test_methods_that_train_are_refused_by_name() -> None:
    with pytest.raises(SettingError, match=r"tent cannot be compiled; .*rectified_tema"):
        realistic_tta.adapt(convolutional(), "tent", compile=True)


WITHOUT = """
import warnings, torch, realistic_tta
from subjects import convolutional
adapted = realistic_tta.adapt(convolutional(), "rectified_tema", compile=True)
eager = realistic_tta.adapt(convolutional(), "rectified_tema")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for seed in range(4):
        images = torch.randn(6, 3, 8, 8)
        assert torch.equal(adapted(images), eager(images))
print([str(each.message) for each in caught if "torch.compile could not" in str(each.message)])
"""


def test_without_a_compiler_it_says_so_once_and_adapts(tmp_path: Path) -> None:
    hidden = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", WITHOUT],
        env=os.environ | hidden,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("torch.compile could not compile this network") == 1
    assert "C++ compiler is needed" in done.stdout


def test_two_networks_of_different_shape_do_not_take_each_others_graph() -> None:
    """torch.compile keeps graphs by code; the guards that would tell the networks apart are off."""
    first = quick()
    second = realistic_tta.adapt(wider(), "rectified_tema", compile=True)
    assert second.compiled is not None
    second.compiled.backend = "aot_eager"
    eager = realistic_tta.adapt(wider(), "rectified_tema")
    for batch in batches(4):
        torch.testing.assert_close(second(batch), eager(batch), rtol=1e-4, atol=1e-5)
        first(batch)
    assert second.compiled.works
    assert_equal_states(second, eager)


def wider() -> nn.Module:
    torch.manual_seed(4)
    layers = [nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(12 * 6 * 6, 5)).eval()


def test_a_network_of_another_type_is_compiled_anew() -> None:
    adapted = quick()
    eager = copy.deepcopy(adapted).double()
    eager.compiled = None
    adapted.double()
    assert has_no_graph(adapted)
    for batch in batches(3):
        wide = batch.double()
        torch.testing.assert_close(adapted(wide), eager(wide), rtol=1e-7, atol=1e-7)
    assert adapted.compiled is not None
    assert adapted.compiled.works
    assert adapted.compiled.graph is not None


def has_no_graph(adapted: AdaptedModel) -> bool:
    """Whether the next batch has to make one: guards that would notice a change are off."""
    return adapted.compiled is not None and adapted.compiled.graph is None


def test_a_loaded_state_is_what_the_graph_goes_on_from() -> None:
    adapted, other = quick(), realistic_tta.adapt(convolutional(), "rectified_tema")
    for batch in batches(3):
        other(batch + 2)
    adapted.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    assert has_no_graph(adapted)
    for batch in batches(2):
        torch.testing.assert_close(adapted(batch), other(batch), rtol=1e-4, atol=1e-5)


def test_a_graph_looks_at_the_call_and_not_at_the_network() -> None:
    """What torch.compile would check in each call, a thousand things, took a tenth of the time."""
    kept = ["", "size", "args[0]", "kwargs['mask']", "adapted._buffers['step']"]
    assert [compiled_module._is_of_the_call(name) for name in kept] == [True] * 4 + [False]
