"""compile=True: one graph per shape of batch, equal results, a warning where it cannot work."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import convolutional, images, same, snapshot, stream
from torch import Tensor, nn

from realistic_tta import METHODS, ForwardError, InputError, OptionError, ServedModel, adapt
from realistic_tta.wrappers import compiled as compiled_module
from realistic_tta.wrappers.compiled import Compiled

COMPILING = [name for name, method in METHODS.items() if method.compiles]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.fx.GraphModule]]:
    """torch.compile without its code generator; the graphs that it made."""
    made: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor], **__: Any) -> Any:
        made.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    yield made
    torch._dynamo.reset()


def compiled(method: str = "rectified_tema", model: nn.Module | None = None) -> ServedModel:
    return adapt(model or convolutional(), method, compile=True)


def level_of(adapted: ServedModel) -> Compiled:
    return next(level for level in adapted._levels() if isinstance(level, Compiled))


def assert_equal_states(one: ServedModel, other: ServedModel) -> None:
    for key, value in one._innermost._state().items():
        torch.testing.assert_close(value, other._innermost._state()[key], rtol=1e-5, atol=1e-6)


def test_inductor_gives_the_results_of_the_method() -> None:
    """With the real compiler, at two batch sizes; each size is compiled when it comes again."""
    torch._dynamo.reset()
    eager, adapted = adapt(convolutional()), compiled("realistic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        for batch in stream([6, 6, 2, 6, 2]):
            torch.testing.assert_close(adapted(batch), eager(batch), rtol=1e-4, atol=1e-5)
    graphs = level_of(adapted)._graphs
    assert graphs.works
    assert len(graphs.shapes) == 2
    assert_equal_states(adapted, eager)
    assert adapted.health().batches == 5


@pytest.mark.filterwarnings("ignore")  # dynamo's own
@pytest.mark.parametrize("method", COMPILING)
def test_a_method_is_one_graph_for_all_batches_of_a_shape(method: str, graphs: list[Any]) -> None:
    adapted, eager = compiled(method), adapt(convolutional(), method)
    for batch in stream([6, 6, 6, 6, 3]):
        torch.testing.assert_close(adapted(batch), eager(batch), rtol=1e-5, atol=1e-6)
    assert len(graphs) == 1
    assert level_of(adapted)._graphs.works
    assert_equal_states(adapted, eager)


class Overflowing(nn.Module):
    """Finite images, Inf inside, when they are large."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = convolutional()

    def forward(self, batch: Tensor) -> Tensor:
        outputs: Tensor = self.rest(batch.exp())
        return outputs


@pytest.mark.filterwarnings("ignore")
def test_an_overflow_inside_a_graph_is_raised_and_changes_nothing(graphs: list[Any]) -> None:
    adapted = compiled(model=Overflowing())
    for batch in stream([6, 6]):
        adapted(batch)
    assert graphs
    before = snapshot(adapted)
    with pytest.raises(InputError, match=r"overflow inside the model.*Nothing was changed"):
        adapted(images(6) + 200)
    with pytest.raises(InputError, match="NaN or Inf in 1 of 6 images"):
        adapted(torch.cat([images(5), torch.full((1, 3, 12, 12), torch.nan)]))
    assert same(before, snapshot(adapted))


@pytest.mark.filterwarnings("ignore")
def test_copies_conversions_and_loaded_states_compile_anew(graphs: list[Any]) -> None:
    adapted, eager = compiled(), adapt(convolutional(), "rectified_tema")
    for batch in stream([6, 6]):
        adapted(batch)
        eager(batch)
    copies = (copy.deepcopy(adapted), pickle.loads(pickle.dumps(adapted)))  # noqa: S301 - ours
    assert all(level_of(each)._graphs.predict is None for each in copies)
    assert level_of(adapted)._graphs.predict is not None
    assert torch.equal(copies[0](images(6)), copies[1](images(6)))
    adapted.load_state_dict(adapted.state_dict())
    assert level_of(adapted)._graphs.predict is None
    adapted.double()
    eager.double()
    for batch in stream([6, 6, 6]):
        wide = batch.double()
        torch.testing.assert_close(adapted(wide), eager(wide), rtol=1e-7, atol=1e-7)
    assert len(graphs) == 2
    assert level_of(adapted)._graphs.works


@pytest.mark.filterwarnings("ignore")
def test_more_shapes_than_are_compiled_run_all_the_same(
    graphs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_module, "MAX_SHAPES", 1)
    adapted, eager = compiled("tbn"), adapt(convolutional(), "tbn")
    for size in (2, 3, 4, 2, 3, 4, 3):
        torch.testing.assert_close(adapted(images(size)), eager(images(size)))
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore")
def test_two_models_do_not_share_a_graph(graphs: list[Any]) -> None:
    """torch.compile keeps graphs by code, and the guards that tell models apart are off."""
    first, second = compiled("tbn"), compiled("tbn", convolutional(classes=3))
    eager = adapt(convolutional(classes=3), "tbn")
    for batch in stream([6, 6, 6]):
        first(batch)
        torch.testing.assert_close(second(batch), eager(batch), rtol=1e-4, atol=1e-5)
    assert len(graphs) == 2


@pytest.mark.filterwarnings("ignore")
def test_autocast_and_channels_last_have_graphs_of_their_own(graphs: list[Any]) -> None:
    adapted, eager = compiled("tema"), adapt(convolutional(), "tema")
    for number, batch in enumerate(stream([6] * 6)):
        given = batch.to(memory_format=torch.channels_last) if number > 3 else batch
        with torch.autocast("cpu", torch.bfloat16, enabled=number in (2, 3)):
            torch.testing.assert_close(adapted(given), eager(given), rtol=2e-2, atol=2e-2)
    assert len(graphs) == 3


@pytest.mark.parametrize("method", [name for name in METHODS if name not in COMPILING])
def test_methods_that_train_are_refused_by_name(method: str) -> None:
    with pytest.raises(OptionError, match=f"compile=True is not supported with {method}"):
        adapt(convolutional(), method, compile=True)


def test_a_process_group_is_refused() -> None:
    with pytest.raises(OptionError, match="compile=True is not supported with process_group"):
        adapt(convolutional(), "tema", compile=True, process_group=object())


class Unpredictable(nn.Module):
    """A model that no graph can hold: it looks at values."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()

    def forward(self, batch: Tensor) -> Tensor:
        outputs: Tensor = self.body(batch)
        return outputs * 2 if outputs.sum().item() > 1e6 else outputs


@pytest.mark.filterwarnings("ignore:.*grad attribute:UserWarning")
def test_a_model_that_cannot_be_compiled_warns_once_and_adapts_without(graphs: list[Any]) -> None:
    adapted, eager = compiled("tbn", Unpredictable()), adapt(Unpredictable(), "tbn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in stream([6, 6, 6, 6]):
            assert torch.equal(adapted(batch), eager(batch))
    ours = [str(each.message) for each in caught if "could not compile" in str(each.message)]
    assert len(ours) == 1
    assert "it adapts without" in ours[0]
    assert not graphs
    assert_equal_states(adapted, eager)


@pytest.mark.filterwarnings("ignore:.*grad attribute:UserWarning")
def test_a_batch_that_does_not_fit_does_not_end_compilation(graphs: list[Any]) -> None:
    adapted = compiled("tbn")
    for _ in range(3):
        with pytest.raises(ForwardError, match='layer "0"'):
            adapted(torch.rand(2, 4, 12, 12))
    for batch in stream([6, 6]):
        adapted(batch)
    assert len(graphs) == 1


WITHOUT = """
import warnings, torch, realistic_tta
from subjects import convolutional
torch.set_num_threads(1)
adapted = realistic_tta.adapt(convolutional(), "tbn", compile=True)
eager = realistic_tta.adapt(convolutional(), "tbn")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for seed in range(3):
        images = torch.randn(6, 3, 8, 8)
        assert torch.equal(adapted(images), eager(images))
print([str(each.message) for each in caught if "torch.compile could not" in str(each.message)])
"""


def test_without_a_compiler_it_warns_once_and_adapts(tmp_path: Path) -> None:
    hidden = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", WITHOUT],
        env=os.environ | hidden,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("torch.compile could not compile this model") == 1
    assert "C++ compiler is needed" in " ".join(done.stdout.replace("'", "").split())


def test_a_graph_is_guarded_by_the_call_and_not_by_the_model() -> None:
    names = ["", "size", "args[0]", "kwargs['mask']", "adapted._buffers['batches']"]
    found = [compiled_module._is_about_the_call(name) for name in names]
    assert found == [True, True, True, True, False]
