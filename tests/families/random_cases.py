"""Random cases of all kinds by name: "products.7.23" is case 23 of seed 7."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tests.families import gemm_cases, quantized_cases, tree_cases
from tests.families.distances import gradients, matrices, products

KINDS = {
    "matrices": matrices.make,
    "products": products.make,
    "gradients": gradients.make,
    "quantized": quantized_cases.make,
    "gemm": gemm_cases.make,
    "trees": tree_cases.make,
}


def make(name: str) -> Any:
    """The case of that name, with `run(device)` and `plan(target)`."""
    kind, seed, number = name.split(".")
    seeds = [int(seed), int(number), zlib.crc32(kind.encode())]
    return KINDS[kind](np.random.default_rng(seeds))
