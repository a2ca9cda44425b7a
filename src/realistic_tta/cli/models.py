"""`rtta models`: the known source models, which are on disk, and where the others are published."""

from __future__ import annotations

import argparse
import json


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `models`."""
    models = commands.add_parser(
        "models",
        help="list the source models and where they are published",
        description="Lists the source models: size, location on disk, and publication.",
    )
    models.add_argument("--json", action="store_true", help="print JSON")
    models.set_defaults(run=_models)


def _models(arguments: argparse.Namespace) -> None:
    from realistic_tta.models.registry import MODELS, models_folder, on_disk, outline, size

    rows = []
    for name, source in MODELS.items():
        parameters, layers = size(outline(name))
        path = on_disk(name)
        rows.append(
            {
                "name": name,
                "dataset": source.dataset,
                "classes": source.classes,
                "parameters": parameters,
                "batch_norms": layers,
                "on_disk": None if path is None else str(path),
                "published": source.published,
            }
        )
    if arguments.json:
        print(json.dumps({"folder": str(models_folder()), "models": rows}, indent=2))
        return
    print(f"{'model':<35}{'dataset':<10}{'classes':>7}{'parameters':>12}{'BN':>4}  on disk")
    for row in rows:
        where = row["on_disk"] or f"no; {row['published']}"
        print(
            f"{row['name']:<35}{row['dataset']:<10}{row['classes']:>7}"
            f"{row['parameters']:>12,}{row['batch_norms']:>4}  {where}"
        )
    print(f"\nSearched in {models_folder()}: NAME.safetensors, or")
    for name, source in MODELS.items():
        if source.file:
            print(f"  {name:<35}{source.file}")
