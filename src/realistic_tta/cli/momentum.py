"""`rtta momentum`: the TEMA momentum for a batch size, with every candidate's objective."""

from __future__ import annotations

import argparse
import json

from .options import positive


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `momentum`."""
    momentum = commands.add_parser(
        "momentum",
        help="choose the TEMA momentum for a batch size",
        description="Chooses the TEMA momentum by class diversity (paper, Eq. 5).",
    )
    momentum.add_argument("--classes", type=positive, required=True, metavar="K")
    momentum.add_argument(
        "--source-batch-size", type=positive, default=128, metavar="N", help="of training (128)"
    )
    momentum.add_argument("--batch-size", type=positive, required=True, help="at test time")
    momentum.add_argument("--json", action="store_true", help="print JSON")
    momentum.set_defaults(run=_momentum)


def _momentum(arguments: argparse.Namespace) -> None:
    from realistic_tta.functional.class_diversity import class_diversity
    from realistic_tta.functional.momentum import CANDIDATES, choose_momentum, momentum_objective

    numbers = (arguments.classes, arguments.source_batch_size, arguments.batch_size)
    candidates = [momentum_objective(momentum, *numbers) for momentum in CANDIDATES]
    chosen = choose_momentum(*numbers)
    source_diversity = class_diversity(arguments.classes, arguments.source_batch_size)
    if arguments.json:
        facts = {
            "classes": arguments.classes,
            "source_batch_size": arguments.source_batch_size,
            "batch_size": arguments.batch_size,
            "source_class_diversity": source_diversity,
            "candidates": [candidate._asdict() for candidate in candidates],
            "momentum": chosen,
        }
        print(json.dumps(facts, indent=2))
        return
    print(
        f"A training batch of {arguments.source_batch_size} images contains on average "
        f"{source_diversity:.2f} of {arguments.classes} classes; a test batch of "
        f"{arguments.batch_size} contains "
        f"{class_diversity(arguments.classes, arguments.batch_size):.2f}."
    )
    print("Averaged with momentum m, the test statistics cover:\n")
    print(f"{'m':>7}{'images':>9}{'classes':>10}{'objective':>12}")
    for candidate in candidates:
        mark = "  <- chosen" if candidate.momentum == chosen else ""
        print(
            f"{candidate.momentum:>7g}{candidate.expanded_scope:>9}"
            f"{candidate.class_diversity:>10.2f}{candidate.objective:>12.4f}{mark}"
        )
