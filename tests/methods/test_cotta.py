"""cotta against its recipe in plain torch: three models, torch's optimizers, a loop."""

from __future__ import annotations

import copy

import pytest
import torch
from methods.method_state import method_state
from subjects import (
    convolutional,
    images,
    on_cpu,
    randomize,
    same,
    signal,
    signals,
    snapshot,
    stream,
)
from torch import Tensor, nn

from realistic_tta import ModelError, OptionError, adapt
from realistic_tta.errors import InputError
from realistic_tta.methods._training.optimizers import SGD
from realistic_tta.methods._training.views.cotta_view import cotta_view
from realistic_tta.methods.cotta import Cotta
from realistic_tta.methods.registry import preset_options


def on_batch_statistics(model: nn.Module) -> nn.Module:
    """A copy in eval mode whose BatchNorms know nothing but the batch."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = module.running_var = None
    return model


class PlainCotta:
    """The published loop, with the draws in the order in which the method makes them."""

    def __init__(self, model: nn.Module, threshold: float, views: int, rate: float) -> None:
        self.student, self.teacher, self.source = (on_batch_statistics(model) for _ in range(3))
        self.threshold, self.views, self.rate = threshold, views, rate
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(0)
        self.looked_at_views = False

    def __call__(self, batch: Tensor) -> Tensor:
        with torch.no_grad():
            sure = self.source(batch).softmax(1).max(1).values.mean() >= self.threshold
            self.looked_at_views = not sure
            looks = [batch]
            if not sure:
                looks = [cotta_view(batch, self.generator) for _ in range(self.views)]
            taught: Tensor = torch.stack([self.teacher(look) for look in looks]).mean(dim=0)
        student = self.student(batch)
        loss = -(taught.softmax(dim=1) * student.log_softmax(dim=1)).sum(dim=1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.follow_and_restore()
        return taught

    @torch.no_grad()
    def follow_and_restore(self) -> None:
        trios = list(
            zip(*(n.parameters() for n in (self.student, self.teacher, self.source)), strict=True)
        )
        draws = torch.rand(sum(own.numel() for own, _, _ in trios), generator=self.generator)
        for (own, teacher, source), draw in zip(
            trios, draws.split([own.numel() for own, _, _ in trios]), strict=True
        ):
            teacher.copy_(0.999 * teacher + 0.001 * own)
            own.copy_(torch.where(draw.view_as(own) < self.rate, source, own))


@pytest.mark.parametrize("views_for", ["some", "all"])
def test_a_stream_is_the_recipe_in_plain_torch(views_for: str) -> None:
    """In float64: Adam makes whole steps of the rounding where a gradient should be 0."""
    model, batches = convolutional().double(), stream([8, 3, 16, 1, 5, 2])
    batches = [batch.double() for batch in batches]
    source = on_batch_statistics(model)
    sure = sorted(source(batch).softmax(1).amax(1).mean().item() for batch in batches)
    threshold = {"some": sure[3], "all": 1.0}[views_for]
    plain = PlainCotta(model, threshold, views=5, rate=0.1)
    adapted = adapt(model, "cotta", threshold=threshold, views=5, restore=0.1)
    looked = []
    for batch in batches:
        torch.testing.assert_close(adapted(batch), plain(batch), atol=1e-6, rtol=0)
        looked.append(plain.looked_at_views)
    assert sum(looked) == {"some": 3, "all": 6}[views_for]
    for name, model in (("weights", plain.student), ("teacher", plain.teacher)):
        expected = nn.utils.parameters_to_vector(model.parameters())
        torch.testing.assert_close(method_state(adapted)[name], expected, atol=1e-6, rtol=0)


def test_views_are_looked_at_only_where_the_source_is_unsure() -> None:
    """Counted in passes of the model: source, teacher or its views, student."""
    passes = 0

    def count(*_: object) -> None:
        nonlocal passes
        passes += 1

    model = convolutional()
    model.register_forward_hook(count)
    for threshold, expected in ((0.0, 3), (1.0, 1 + 7 + 1)):
        adapted = adapt(model, "cotta", threshold=threshold, views=7)
        passes = 0
        adapted(images(4))
        assert passes == expected


def test_the_symmetric_loss_and_sgd_of_imagenet_are_torchs() -> None:
    model = convolutional()
    adapted = adapt(model, "cotta", preset="imagenet_c", restore=0.0, threshold=0.0)
    student, teacher = on_batch_statistics(model), on_batch_statistics(model)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    for batch in stream([6, 6]):
        adapted(batch)
        target, own = teacher(batch).detach(), student(batch)
        there = -(target.softmax(1) * own.log_softmax(1)).sum(1)
        back = -(own.softmax(1) * target.log_softmax(1)).sum(1)
        optimizer.zero_grad()
        (0.5 * there + 0.5 * back).mean().backward()
        optimizer.step()
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.001)
    expected = nn.utils.parameters_to_vector(student.parameters())
    torch.testing.assert_close(method_state(adapted)["weights"], expected, atol=1e-5, rtol=0)


def test_presets_are_the_published_settings() -> None:
    small, large, photographs = (
        Cotta(**preset_options("cotta", name)) for name in ("cifar10_c", "cifar100_c", "imagenet_c")
    )
    assert small == Cotta()
    assert (small.threshold, large.threshold, photographs.threshold) == (0.92, 0.72, 0.1)
    assert (small.restore, large.restore, photographs.restore) == (0.01, 0.01, 0.001)
    assert (small.views, small.teacher_momentum) == (32, 0.999)
    assert not small.symmetric
    assert photographs.symmetric
    assert photographs.optimizer == SGD(lr=0.01, momentum=0.9, nesterov=True)


def test_all_parameters_are_trained_whatever_they_are() -> None:
    """Also of models without BatchNorm; and the frozen copy holds the teacher."""
    with on_cpu():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 5))
    adapted = adapt(model, "cotta", views=2, teacher_momentum=0.5)
    assert adapted.report().trained == ("0.weight", "0.bias", "3.weight", "3.bias")
    for batch in stream([4, 1]):
        adapted(batch)
    frozen = nn.utils.parameters_to_vector(adapted.freeze().parameters())
    assert torch.equal(frozen, method_state(adapted)["teacher"])
    assert not torch.equal(frozen, nn.utils.parameters_to_vector(model.parameters()))


def test_frozen_statistics_are_those_of_all_views_together() -> None:
    model, batch = convolutional(), images(6)
    adapted = adapt(model, "cotta", views=3)
    adapted(batch)
    generator = torch.Generator().manual_seed(0)
    views = torch.cat([cotta_view(batch, generator) for _ in range(3)])
    reached: Tensor = model.get_submodule("0")(views).detach()  # the first BatchNorm's input
    norm = adapted.freeze().get_submodule("1")
    mean, variance = reached.mean((0, 2, 3)), reached.var((0, 2, 3), correction=0)
    torch.testing.assert_close(norm.running_mean, mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(norm.running_var, variance, atol=1e-5, rtol=1e-4)


def gray_model() -> nn.Module:
    with on_cpu():
        return randomize(
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(400, 5))
        )


def test_images_of_one_channel_have_views_and_other_inputs_are_refused() -> None:
    assert adapt(gray_model(), "cotta", views=2)(images(4)[:, :1]).shape == (4, 5)
    for model, batch in (
        (nn.Conv2d(2, 5, 1), torch.rand(2, 2, 4, 4)),
        (signal(), signals(3)),
        (nn.Linear(4, 5), torch.rand(3, 4)),
    ):
        adapted = adapt(nn.Sequential(model, nn.Flatten()), "cotta", views=2)
        before = snapshot(adapted)
        with pytest.raises(InputError, match=r"has shape \(\d.*1 or 3 channels"):
            adapted(batch)
        assert same(before, snapshot(adapted))


def test_one_value_per_channel_names_the_layer_and_changes_nothing() -> None:
    with on_cpu():
        model = nn.Sequential(nn.Conv2d(3, 4, 12), nn.BatchNorm2d(4), nn.Flatten())
    adapted = adapt(model, "cotta", views=2)
    adapted(images(2))
    before = snapshot(adapted)
    with pytest.raises(InputError, match=r'layer "1".*no variance'):
        adapted(images(1))
    assert same(before, snapshot(adapted))


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ModelError, match="cotta trains all parameters of a model, and this"):
        adapt(nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Flatten()), "cotta")


def test_an_episode_knows_nothing_of_the_one_before() -> None:
    adapted = adapt(convolutional(), "cotta", episodic=True, views=2, steps=2)
    first = adapted(images(4))
    adapted(images(4, seed=1))
    assert torch.equal(adapted(images(4)), first)


def test_more_steps_move_further() -> None:
    """Two steps on a batch are two batches of one step, but for the count."""
    twice = adapt(convolutional(), "cotta", views=2, steps=2)
    once = adapt(convolutional(), "cotta", views=2)
    once(images(4))
    torch.testing.assert_close(twice(images(4)), once(images(4)))
    assert torch.equal(method_state(twice)["weights"], method_state(once)["weights"])


def test_the_seed_decides_the_views() -> None:
    outputs = [adapt(convolutional(), "cotta", views=2, seed=seed)(images(4)) for seed in (0, 0, 1)]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"restore": 1.5}, "restore is 1.5; expected a number from 0 to 1"),
        ({"threshold": "high"}, "threshold is 'high'"),
        ({"views": 0}, "views is 0; expected a whole number of 1 or more"),
        ({"symmetric": 1}, "symmetric is 1; expected True or False"),
        ({"seed": -1}, "seed is -1; expected a whole number from 0"),
        ({"optimizer": "adam"}, "optimizer is 'adam'"),
    ],
    ids=str,
)
def test_wrong_hyperparameters_raise(setting: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        adapt(convolutional(), "cotta", **setting)  # type: ignore[arg-type]
