"""What a stream was made of, and its short hash: one hash, the same images in the same order.

The hash depends on the bytes of the images, never on where they lie, nor on the process.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from .stream import Stream

VERSION = 1  # of the orderings: raised when a plan would give another order than before


def manifest(data: str, stream: Stream) -> dict[str, Any]:
    """The facts: data set, plan, number of images, parts with the checksum of their content."""
    unique = dict(zip(stream.parts, stream.contents, strict=True))  # gradual shows some twice
    digests = {part: images.digest() for part, images in unique.items()}
    return {
        "version": VERSION,
        "data": data,
        **asdict(stream.plan),
        "images": stream.images() // len(stream.parts),
        "parts": [[part.corruption, part.severity, digests[part]] for part in stream.parts],
    }


def short_hash(facts: Any) -> str:
    """Sixteen hexadecimal digits for anything that JSON can say; the order of keys is nothing.

    >>> short_hash({"a": 1, "b": [2]}) == short_hash({"b": [2], "a": 1})
    True
    """
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
