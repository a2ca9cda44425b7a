"""Draws every corruption at every severity on one sheet.

    python examples/contact_sheet.py --out docs/images/corruptions.png

Rows are corruptions, columns are severities 1 to 5, for two of the bundled images.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from realistic_tta.data.bundled_images import load_bundled_images
from realistic_tta.data.corruptions import corrupt
from realistic_tta.data.registry import CORRUPTIONS, EXTRA_CORRUPTIONS, SEVERITIES

SCALE, MARGIN, GAP = 2, 150, 12
SHOWN = (1, 7)  # a ship and a frog


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw all corruptions on one sheet.")
    parser.add_argument("--out", type=Path, default=Path("docs/images/corruptions.png"))
    out = parser.parse_args().out
    images = load_bundled_images().take(np.array(SHOWN))

    side = images.shape[1] * SCALE
    names = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)
    width = MARGIN + len(SHOWN) * (len(SEVERITIES) * side + GAP)
    sheet = Image.new("RGB", (width, len(names) * side), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for row, name in enumerate(names):
        draw.text((6, row * side + side // 2 - 8), name, fill="black", font=font)
        for column, severity in enumerate(SEVERITIES):
            corrupted = corrupt(images, name, severity, np.random.default_rng(0))
            for index, image in enumerate(corrupted):
                left = MARGIN + index * (len(SEVERITIES) * side + GAP) + column * side
                large = Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST)
                sheet.paste(large, (left, row * side))
    out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out, optimize=True)
    print(out)


if __name__ == "__main__":
    main()
