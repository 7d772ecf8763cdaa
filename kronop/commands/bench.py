"""Speeds against rooflines and what else is installed: of each family, of a model, of a start."""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

from kronop import families
from kronop.commands import bench_plot, bench_start, bench_vit, parsing

EXAMPLES = {
    "bench kron --shapes 256:8^3": "a product in two types, beside other libraries",
    "bench kron --device cuda --json gpu.json": "twelve products in two types on a GPU",
    "bench plot gpu.json --out speeds.svg": "a picture of what was measured",
}


def configure(parser: argparse.ArgumentParser) -> None:
    subjects = parser.add_subparsers(dest="subject", required=True)
    for name, module in _subjects().items():
        parsing.add_module(subjects, name, module)


def execute(options: argparse.Namespace) -> None:
    """Runs the chosen benchmark and prints its results.

    Raises:
        KronopError: the arguments are invalid, or cases failed; the output says which.
    """
    _subjects()[options.subject].execute(options)


def _subjects() -> dict[str, ModuleType]:
    named = {family.name: family.bench for family in families.FAMILIES if family.bench}
    return {name: importlib.import_module(module) for name, module in named.items()} | {
        "vit": bench_vit,
        "start": bench_start,
        "plot": bench_plot,
    }
