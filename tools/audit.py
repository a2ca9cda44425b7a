"""Asks PyPI which of the pinned packages have known vulnerabilities.

    make audit

PyPI's JSON API carries what the Python Packaging Advisory Database knows of a version. Ends with
code 1 if something is known, and with code 2 if PyPI could not be asked: that is no good answer.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

PINS = Path(__file__).parents[1] / "constraints.txt"
API = "https://pypi.org/pypi/{name}/{version}/json"


def pins(text: str) -> list[tuple[str, str]]:
    """Names and versions; what a build adds to a version (+cpu) is not known to PyPI.

    >>> pins("torch==2.13.0+cpu  # a reason")
    [('torch', '2.13.0')]
    """
    return re.findall(r"^([\w.-]+)==([\w.]+)", text, flags=re.MULTILINE)


def known(name: str, version: str) -> list[str]:
    """What is known of this version, a line each; what was withdrawn is not."""
    address = API.format(name=name, version=version)
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 - https, see above
        found = json.load(answer)["vulnerabilities"]
    return [
        f"{name} {version}: {', '.join([each['id'], *each['aliases']])}, "
        f"right again in {', '.join(each['fixed_in']) or 'no version yet'}"
        for each in found
        if not each.get("withdrawn")
    ]


def main() -> int:
    asked = pins(PINS.read_text())
    found: list[str] = []
    for name, version in asked:
        try:
            found += known(name, version)
        except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
            print(f"not checked: PyPI's JSON API did not answer for {name} {version} ({error})")
            return 2
    print("\n".join(found) or f"nothing is known against the {len(asked)} pinned packages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
