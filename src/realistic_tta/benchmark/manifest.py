"""The short hash of a stream: equal hashes mean the same images in the same order.

It depends on the bytes of the images, never on their location or on the process.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from .stream import Stream

VERSION = 2  # raised when the same plan would give another order, or other names


def manifest(dataset: str, stream: Stream) -> dict[str, Any]:
    """Dataset, plan, number of images, and the checksum of every part."""
    unique = dict(zip(stream.parts, stream.contents, strict=True))  # gradual repeats parts
    digests = {part: images.digest() for part, images in unique.items()}
    return {
        "version": VERSION,
        "dataset": dataset,
        **asdict(stream.plan),
        "images": stream.images() // len(stream.parts),
        "parts": [[part.corruption, part.severity, digests[part]] for part in stream.parts],
    }


def short_hash(facts: Any) -> str:
    """Sixteen hexadecimal digits for any JSON value; the order of keys does not matter.

    >>> short_hash({"a": 1, "b": [2]}) == short_hash({"b": [2], "a": 1})
    True
    """
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
