"""Instructions of a batch of one image, by valgrind's callgrind: a count that no noise changes.

    python benchmarks/instructions.py                  # of the package that is installed
    PYTHONPATH=other/src python benchmarks/instructions.py     # of another version

Takes minutes. valgrind must be installed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from torch.utils.benchmark import Timer

SETUP = """
import torch, realistic_tta
from realistic_tta.models.resnet import CifarResNet
torch.set_num_threads(1)
torch.manual_seed(0)
network = CifarResNet(20, 10).eval()
torch.set_grad_enabled(False)
images = torch.rand(1, 3, 32, 32)
call = {call}
for _ in range(5):
    call(images)
"""
CALLS = {
    "plain": "network",
    "tbn": 'realistic_tta.adapt(network, "tbn")',
    "tema": 'realistic_tta.adapt(network, "tema")',
    "rectified_tema, passes=1": 'realistic_tta.adapt(network, "rectified_tema", passes=1)',
    "rectified_tema": 'realistic_tta.adapt(network, "rectified_tema")',
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--of", default="/".join(CALLS), help="names with a slash between")
    arguments = parser.parse_args()
    folder = str(Path(sys.executable).parent)  # torch starts whatever "python" there is
    os.environ["PATH"] = os.pathsep.join([folder, os.environ["PATH"]])
    plain = 0.0
    for name in arguments.of.split("/"):
        timer = Timer("call(images)", SETUP.format(call=CALLS[name]))
        found = timer.collect_callgrind(
            number=arguments.batches, repeats=None, collect_baseline=False, retain_out_file=False
        )
        each = found.counts() / arguments.batches
        plain = plain or each
        print(f"{name:26}{each / 1e6:9.2f} million{each / plain:8.2f}", flush=True)


if __name__ == "__main__":
    main()
