"""`rtta faults`: what bad samples in a stream do to the good ones, method by method."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .bench_run import in_words

if TYPE_CHECKING:
    from realistic_tta.faults.trial import Outcome, Trial

METHODS = (  # those that take seconds; sar, eta, cotta and adacontrast by choice
    "source,plain_tbn,tbn,tbn+robust,plain_medbn,alpha_bn,adapt_bn,plain_tema,tema,tema+robust,"
    "rectified_tema,rectified_tema+robust,realistic,realistic+robust,lame,plain_tent,tent"
)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `faults`."""
    faults = commands.add_parser(
        "faults",
        help="what faulty and hostile samples in a stream do to the good ones",
        description="Replaces a share of the middle third of a stream by faulty samples and prints "
        "the error on the good ones before, during and after. The package's network and "
        "photographs; nothing is fetched. Interrupted, it goes on.",
    )
    what = faults.add_argument_group("what to run; each a value or several, 1,5,20")
    what.add_argument(
        "--methods",
        default=METHODS,
        metavar="LIST",
        help="names; +robust, +guard and +from_source behind a name switch those on, "
        "plain_tbn, plain_tema, plain_medbn and plain_tent have no checks; default: the cheap ones",
    )
    what.add_argument("--faults", default="all", metavar="LIST", help="default: all")
    what.add_argument("--shares", default="1,5,20", metavar="LIST", help="percent; default: 1,5,20")
    what.add_argument("--corruptions", default="gaussian_noise", metavar="LIST")
    what.add_argument("--seeds", default="1", metavar="LIST", help="default: 1")
    faults.add_argument("--images", type=int, default=960, metavar="N", help="in a stream")
    faults.add_argument("--batch-size", type=int, default=16, metavar="N")
    faults.add_argument("--out", type=Path, default=Path("rtta-faults"), metavar="DIR")
    faults.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    faults.add_argument("--dry-run", action="store_true", help="say how much would run")
    faults.set_defaults(run=_faults)


def _faults(arguments: argparse.Namespace) -> None:
    from realistic_tta.faults.engine import run_all
    from realistic_tta.faults.store import read

    if arguments.workers < 1:
        raise ValueError(f"workers is {arguments.workers}; expected 1 or more")
    wanted = _trials(arguments)
    outcomes = {trial: read(trial, arguments.out) for trial in wanted}
    left = sum(outcome is None for outcome in outcomes.values())
    print(f"{len(wanted)} trials, {len(wanted) - left} of them done")
    if arguments.dry_run:
        return
    for done, trial in enumerate(run_all(wanted, arguments.out, arguments.workers), start=1):
        outcomes[trial] = read(trial, arguments.out)
        _tell(done, left)
    _show({trial: outcome for trial, outcome in outcomes.items() if outcome is not None})
    print(f"outcomes in {arguments.out}")


def _show(outcomes: Mapping[Trial, Outcome]) -> None:
    """A table for each share."""
    from realistic_tta.faults.table import table
    from realistic_tta.faults.trial import NO_FAULT

    subjects = list(dict.fromkeys(trial.subject for trial in outcomes))
    faulty = [trial for trial in outcomes if trial.fault != NO_FAULT]
    faults = list(dict.fromkeys(trial.fault for trial in faulty))
    for share in dict.fromkeys(trial.share for trial in faulty):
        print(f"\nPercent wrong of the good samples, during / after; {share:g} percent faulty:\n")
        print("\n".join(table(outcomes, subjects, faults, share)))
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    print(f"\n{in_words(seconds)} of one core")


def _trials(arguments: argparse.Namespace) -> list[Trial]:
    from realistic_tta.faults.engine import trials
    from realistic_tta.faults.samples import FAULTS

    return trials(
        _words(arguments.methods),
        list(FAULTS) if arguments.faults == "all" else _words(arguments.faults),
        _numbers("shares", arguments.shares),
        _words(arguments.corruptions),
        [int(seed) for seed in _numbers("seeds", arguments.seeds)],
        images=arguments.images,
        batch_size=arguments.batch_size,
    )


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",")))


def _numbers(name: str, text: str) -> Sequence[float]:
    try:
        return [float(word) for word in _words(text)]
    except ValueError:
        raise ValueError(f'{name} is "{text}"; expected numbers such as 1,5,20') from None


def _tell(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {of} ", end="" if done < of else "\n", file=sys.stderr, flush=True)
