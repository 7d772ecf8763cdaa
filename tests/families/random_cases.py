"""Random cases of all kinds by name: "products.7.23" is case 23 of seed 7."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_HERE = Path(__file__).parent
_END = "_cases.py"


def _kinds() -> dict[str, Callable[[np.random.Generator], Any]]:
    """What makes a case of each kind: the `make` of each file `KIND_cases.py` below this folder, so
    that a new family adds a file and no line here."""
    found = {}
    for path in sorted(_HERE.rglob(f"*{_END}")):
        if not path.name.startswith(("random_", "test_")):
            name = ".".join((__package__, *path.relative_to(_HERE).with_suffix("").parts))
            found[path.name.removesuffix(_END)] = importlib.import_module(name).make
    return found


KINDS = _kinds()


def make(name: str) -> Any:
    """The case of that name, with `run(device)` and `plan(target)`."""
    kind, seed, number = name.split(".")
    seeds = [int(seed), int(number), zlib.crc32(kind.encode())]
    return KINDS[kind](np.random.default_rng(seeds))
