"""A picture for each piece of realistic, from the package's network and photographs.

python tools/beyond_pictures.py docs/images [NAME ...]

Writes beyond_total_variance.png, beyond_warm_start.png, beyond_memories.png, beyond_source.png,
beyond_changes.png, beyond_labels.png, beyond_mirror.png and, for domains,
beyond_domains.png, as docs/beyond.md shows them. All but source, changes, labels and mirror look
at the first BatchNorm layer, whose inputs are the same whatever the layers do. Those four are
answers on the corruptions that settings were chosen on; mirror also on the digits of
examples/digits.py.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import realistic_tta
from realistic_tta.data.bundled_images import load_sample
from realistic_tta.data.corruptions.catalogue import corrupt
from realistic_tta.functional.channel_statistics import ChannelStatistics
from realistic_tta.functional.content import Content, scatter_of, whiten, whitening
from realistic_tta.functional.image_moments import Units
from realistic_tta.functional.rectification import VARIANCE_FLOOR
from realistic_tta.functional.signature import signatures
from realistic_tta.models.checkpoints import load_model
from realistic_tta.report.style import STYLES, in_style, new_panels, write_figure

SIZE = (5.0, 3.0)
OURS, THEIRS = STYLES["realistic"]["color"], STYLES["rectified_tema"]["color"]
# The last memory, and all that came by.
ALONE: dict[str, Any] = {"noise": 0.0, "tolerance": 0.0, "source_share": 0.0, "changes": False}
OFF = "log of the ratio, mean channel"
EXAMPLES = Path(__file__).parents[1] / "examples"
VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")


def shifted(corruption: str, count: int, start: int = 0) -> tuple[Tensor, Tensor]:
    """Images at severity 5, and their labels."""
    sample = load_sample()
    few = slice(start, start + count)
    pixels = corrupt(sample.images[few], corruption, 5, np.random.default_rng(0))
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
    return images, torch.from_numpy(sample.labels[few])


def adapted(method: str = "realistic", **settings: Any) -> Any:
    return realistic_tta.adapt(load_model("cifar10"), method, **settings)


def first(network: Any, statistic: str) -> Tensor:
    """Of the first layer's channels."""
    found: Tensor = network.get_buffer(statistic)[: network.sizes[0]].clone()
    return found


def off(network: Any, final: Any) -> float:
    """How far the variance is from the final one."""
    ratio = first(network, "target_variance") / first(final, "target_variance")
    return ratio.log().abs().mean().item()


def panel(title: str, x: str, y: str, size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    figure, (axes,) = new_panels(1, 1, size, title)
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


@in_style
def total_variance() -> Figure:
    images, _ = shifted("gaussian_noise", 256)
    whole = adapted("tbn")
    whole(images)
    pooled = first(whole, "target_variance")
    figure, axes = panel(
        "Variance found, over that of all 256 images", "batch size", "ratio, median channel"
    )
    sizes = [1, 2, 4, 8, 16, 64]
    for total, colour, label in (
        (True, OURS, "total variance"),
        (False, THEIRS, "average of batch variances"),
    ):
        found = []
        for size in sizes:
            network = adapted(
                total_variance=total, several_memories=False, source_batch_size=10**6, **ALONE
            )
            for batch in images.split(size):
                network(batch)
            ratio = first(network, "target_variance") / pooled
            found.append(ratio.median().item())
        axes.plot(sizes, found, color=colour, marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, list(map(str, sizes)))
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


@in_style
def warm_start() -> Figure:
    images, _ = shifted("gaussian_noise", 300)
    final = adapted("tbn")
    final(images)
    figure, axes = panel(
        "How far the variance is from that of all images, batch size 1", "images seen", OFF
    )
    one = {"several_memories": False, **ALONE}
    for network, colour, label in (
        (adapted(**one), OURS, "warm start"),
        (adapted(warm_start=False, **one), "#999999", "from the source"),
        (adapted("tema"), THEIRS, "tema: from mean 0, variance 1"),
    ):
        way = []
        for image in images.split(1):
            network(image)
            way.append(off(network, final))
        axes.plot(range(1, len(way) + 1), way, color=colour, label=label)
    axes.set(xscale="log", yscale="log")
    axes.legend()
    return figure


@in_style
def memories() -> Figure:
    before, after = shifted("gaussian_noise", 240)[0], shifted("fog", 240, start=240)[0]
    final = adapted("tbn")
    final(after)
    figure, axes = panel(
        "How far the variance is from the new domain's, batch size 4",
        "images since the change",
        OFF,
    )
    for several, changes, colour, label in (
        (True, True, OURS, "three memories, and changes seen"),
        (True, False, THEIRS, "three memories"),
        (False, False, "#999999", "one, of 128 images"),
    ):
        network = adapted(several_memories=several, changes=changes, source_share=0.0)
        way = []
        for batch in torch.cat((before, after)).split(4):
            network(batch)
            way.append(off(network, final))
        since = range(4 - len(before), len(after) + 1, 4)
        axes.plot(since, way, color=colour, label=label)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlim(left=-60)
    axes.legend()
    return figure


@in_style
def source() -> Figure:
    parts = [shifted(name, 250) for name in VALIDATION]
    shares = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8]
    errors = [error(adapted(source_share=share), parts) for share in shares]
    figure, axes = panel(
        "What the source weighs at least, batch size 16", "source_share", "error (%)"
    )
    axes.plot(shares, errors, color=OURS, marker="d", label="realistic")
    beside = error(adapted("rectified_tema"), parts)
    axes.axhline(beside, color=THEIRS, linestyle="--", label="rectified_tema")
    axes.legend()
    return figure


def error(network: Any, parts: list[tuple[Tensor, Tensor]]) -> float:
    """Percent wrong, in batches of 16."""
    wrong = [
        network(images).argmax(dim=1) != labels
        for part in parts
        for images, labels in zip(*(each.split(16) for each in part), strict=True)
    ]
    return 100 * torch.cat(wrong).float().mean().item()


@in_style
def changes() -> Figure:
    """The error by how many images ago the corruption began, 50 images of each in turns."""
    parts = [shifted(name, 2000) for name in VALIDATION]
    figure, axes = panel(
        "A new corruption every 50 photographs, batch size 1",
        "images since the corruption began",
        "error (%)",
    )
    for seeing, told, colour, label in (
        (False, False, "#999999", "without looking for changes"),
        (True, False, OURS, "realistic"),
        (False, True, THEIRS, "told of every change"),
    ):
        network, wrong = adapted(changes=seeing), []
        for start, (images, labels) in itertools.product(range(0, 2000, 50), parts):
            if told:
                network.reset()
            few = range(start, start + 50)
            wrong += [network(images[[one]]).argmax(1) != labels[[one]] for one in few]
        by_age = torch.cat(wrong).float().view(-1, 50).mean(dim=0)
        ends = [1, 2, 4, 8, 16, 32, 50]
        errors = [100 * part.mean().item() for part in by_age.tensor_split(ends[:-1])]
        axes.plot(ends, errors, color=colour, marker=".", label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ends, ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-50"])
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


@in_style
def labels() -> Figure:
    """What is answered, image by image, of a corruption that follows another one."""
    first_images, names = shifted("speckle_noise", 200)
    images, _ = shifted("spatter", 200)
    order = names.argsort(stable=True)
    rows = {"labels": names[order]}
    for label, sizes in (("the network", 16), ("one by one", 1), ("16 at once", 16)):
        network = adapted(label_runs=label != "the network")
        both = torch.cat((first_images[order], images[order]))
        rows[label] = torch.cat([network(few).argmax(1) for few in both.split(sizes)])[200:]
    figure, axes = panel("Answers where labels come in runs of 20", "image", "", size=(7.0, 2.2))
    axes.imshow(torch.stack([*rows.values()]), aspect="auto", cmap="tab10", interpolation="nearest")
    wrong = [(100 * (row != rows["labels"]).float().mean()).item() for row in rows.values()]
    told = [f"{label}: {each:.0f} % wrong" for label, each in zip(rows, wrong, strict=True)]
    axes.set_yticks(range(len(rows)), ["labels", *told[1:]])
    axes.grid(visible=False)
    return figure


@in_style
def mirror() -> Figure:
    """How alike the answers to images and to their mirror images are."""
    photographs = torch.cat([shifted(name, 100)[0] for name in VALIDATION])
    spec = importlib.util.spec_from_file_location("digits", EXAMPLES / "digits.py")
    assert spec is not None
    assert spec.loader is not None
    digits: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images, names = digits.load()
        network = digits.build()
        digits.train(network, images[:900], names[:900], epochs=15)
    many = torch.cat([change(images[900:1000]) for change in digits.shifts().values()])
    figure, axes = panel(
        "Single images and their mirror images", "likeness of both answers", "share of images (%)"
    )
    for label, alike, colour in (
        ("photographs, four corruptions", likeness(adapted(), photographs), OURS),
        ("digits, five corruptions", likeness(realistic_tta.adapt(network), many), THEIRS),
    ):
        weights = torch.full_like(alike, 100 / len(alike))
        named = f"{label}: {alike.mean().item():.2f} on average"
        axes.hist(
            alike, bins=20, range=(0, 1), weights=weights, alpha=0.6, color=colour, label=named
        )
    axes.set_ylim(top=80)
    axes.legend(loc="upper center")
    return figure


def likeness(network: Any, images: Tensor) -> Tensor:
    """Of each image; forgotten every 25, so that the mirror is not found useless."""
    found = []
    for few in images.split(25):
        network.reset()
        for one in few.split(1):
            before = network.settings.decay * network.mirror_sums.sum()
            network(one)
            found.append((network.mirror_sums.sum() - before).item())
    return torch.tensor(found).clamp(0, 1)


@in_style
def domains() -> Figure:
    """Where signatures lie, in the two directions in which the kinds' means differ most."""
    told = [first_signatures(shifted(name, 200)[0]) for name in VALIDATION]
    parts = torch.cat([parts for _, parts in told])
    content = Content(scatter_of(parts), parts.new_tensor(len(parts)))
    features = torch.cat([whole for whole, _ in told]).std(dim=0)
    figure, panels = new_panels(1, 2, (4.0, 3.2), "Signatures of four kinds of images, 200 of each")
    for axes, factor, title in (
        (panels[0], torch.diag(features), "each feature by its own deviation"),
        (panels[1], whitening(content, parts.shape[1]), "by what parts of an image differ by"),
    ):
        white = [whiten(each, factor) for each, _ in told]
        means = torch.stack([each.mean(dim=0) for each in white])
        directions = torch.linalg.svd(means - means.mean(dim=0))[2][:2]
        for name, each in zip(VALIDATION, white, strict=True):
            seen = (each - means.mean(dim=0)) @ directions.T
            axes.plot(*seen.T, ".", markersize=3, label=name.replace("_", " "))
        right = [
            (torch.cdist(each, means).argmin(dim=1) == place).float().mean()
            for place, each in enumerate(white)
        ]
        axes.set_title(f"{title}: {100 * torch.stack(right).mean():.0f} % nearest", fontsize=8)
    panels[0].legend(markerscale=3, fontsize=7)
    return figure


def first_signatures(images: Tensor) -> tuple[Tensor, Tensor]:
    """Of whole images and of their parts, as they reach the first layer."""
    network: Any = load_model("cifar10")
    seen: list[Tensor] = []
    norm: Any = next(each for each in network.modules() if isinstance(each, torch.nn.BatchNorm2d))
    norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        network(images)
    source = ChannelStatistics(norm.running_mean, norm.running_var)
    return signatures(seen[0], Units.of(source, VARIANCE_FLOOR))


PICTURES = {
    "total_variance": total_variance,
    "warm_start": warm_start,
    "memories": memories,
    "source": source,
    "changes": changes,
    "labels": labels,
    "mirror": mirror,
    "domains": domains,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:] or PICTURES:
        draw = PICTURES[name]
        write_figure(draw(), Path(sys.argv[1]) / f"beyond_{name}.png")
