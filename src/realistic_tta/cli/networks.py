"""`rtta networks`: what is known, what is on disk, where the rest is published."""

from __future__ import annotations

import argparse
import json


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds this part's commands to the parser's."""
    networks = commands.add_parser(
        "networks",
        help="the source networks: size, what is on disk, where the rest is published",
        description="Networks are looked for in $RTTA_DATA/networks, or the user's cache.",
    )
    networks.add_argument("--json", action="store_true", help="for machines")
    networks.set_defaults(run=_networks)


def _networks(arguments: argparse.Namespace) -> None:
    from realistic_tta.models.registry import NETWORKS, networks_folder, on_disk, outline, size

    rows = []
    for name, source in NETWORKS.items():
        parameters, layers = size(outline(name))
        path = on_disk(name)
        rows.append(
            {
                "name": name,
                "data": source.data,
                "classes": source.classes,
                "parameters": parameters,
                "batch_norms": layers,
                "on_disk": None if path is None else str(path),
                "published": source.published,
            }
        )
    if arguments.json:
        print(json.dumps({"folder": str(networks_folder()), "networks": rows}, indent=2))
        return
    print(f"{'network':<23}{'data':<10}{'classes':>7}{'parameters':>12}{'BN':>4}  on disk")
    for row in rows:
        there = row["on_disk"] or f"no; {row['published']}"
        print(
            f"{row['name']:<23}{row['data']:<10}{row['classes']:>7}"
            f"{row['parameters']:>12,}{row['batch_norms']:>4}  {there}"
        )
    print(f"\nLooked for in {networks_folder()}: NAME.safetensors, or")
    for name, source in NETWORKS.items():
        if source.file:
            print(f"  {name:<23}{source.file}")
