"""Draws every corruption at every severity, to be looked at.

    python examples/contact_sheet.py --source FOLDER --out docs/images/corruptions.png

FOLDER holds CIFAR-10, as `rtta data get cifar10` leaves it. Rows are corruptions, columns
severities 1 to 5, for two test images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from realistic_tta.data.cifar import load_cifar
from realistic_tta.data.corruptions import corrupt
from realistic_tta.data.registry import CORRUPTIONS, EXTRA_CORRUPTIONS, SEVERITIES

SCALE, MARGIN, GAP = 2, 150, 12
SHOWN = (1, 7)  # a ship and a frog


def main() -> None:
    parser = argparse.ArgumentParser(description="All corruptions on one sheet.")
    parser.add_argument("--source", type=Path, help="CIFAR-10; by default where rtta data puts it")
    parser.add_argument("--out", type=Path, default=Path("docs/images/corruptions.png"))
    arguments = parser.parse_args()
    images = np.asarray(load_cifar("cifar10", "test", arguments.source).images[list(SHOWN)])

    side = images.shape[1] * SCALE
    names = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)
    width = MARGIN + len(SHOWN) * (len(SEVERITIES) * side + GAP)
    sheet = Image.new("RGB", (width, len(names) * side), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for row, name in enumerate(names):
        draw.text((6, row * side + side // 2 - 8), name, fill="black", font=font)
        for column, severity in enumerate(SEVERITIES):
            corrupted = corrupt(images, name, severity, np.random.default_rng(0))
            for place, image in enumerate(corrupted):
                left = MARGIN + place * (len(SEVERITIES) * side + GAP) + column * side
                large = Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST)
                sheet.paste(large, (left, row * side))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(arguments.out, optimize=True)
    print(arguments.out)


if __name__ == "__main__":
    main()
