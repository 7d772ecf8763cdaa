"""What plans expect of GPUs that nobody measured: `python -m tests.perf.other_cards` prints the
table of docs/gpus.md, `--measured` how far the same expectation is from what an H200 and an H100
took.

A time is what the planner's model of costs says, at the clock at which it was fitted, or the
roofline if that is longer.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import kronop
from kronop.core.calls import epilogue_of
from kronop.descriptions.datatype import DataType
from kronop.emit.cuda.machine import (
    PRODUCTS_OF_SPLIT,
    gpu_of,
    hertz_of_copies,
    memory_bytes_per_cycle,
)
from kronop.families.kron.cuda import few_rows, pass_cost, passes
from kronop.families.kron.cuda.pass_design import TiledPass
from kronop.families.ksparse.cuda import choice
from kronop.machine import COPIED_SHARE, Feature
from kronop.target import Target

_DATA = Path(__file__).parents[2] / "docs" / "data"


def _card(target: str, name: str, cores: int, gigahertz: float, gigabytes: float) -> Target:
    bandwidth = COPIED_SHARE * gigabytes * 1e9
    return Target.parse(target).of_card(name, cores, gigahertz * 1e9, bandwidth=bandwidth)


_H200, _H100 = Target.parse("sm_90a"), _card("sm_90a", "H100", 132, 1.98, 3352)
_CARDS = {
    "V100": Target.parse("sm_70"),
    "A100": Target.parse("sm_80"),
    "RTX 3090": Target.parse("sm_86"),
    "RTX 4090": Target.parse("sm_89"),
    "L4": _card("sm_89", "L4", 58, 2.04, 300),
    "RTX 5090": Target.parse("sm_120"),
}
_Sizes = list[tuple[int, int]]
_PRODUCTS: list[tuple[str, int, _Sizes]] = [
    (element, rows, [(size, size)] * count)
    for element, rows, size, count in (
        ("float32", 1024, 8, 5),
        ("float32", 1024, 8, 6),
        ("float32", 1024, 16, 4),
        ("float32", 1024, 32, 3),
        ("float32", 1024, 64, 3),
        ("float32", 1024, 128, 3),
        ("float64", 1024, 8, 5),
        ("float64", 1024, 32, 3),
    )
]
_PATTERNS = [
    ("float16", (6, 64, 64, 1)),
    ("float16", (1, 768, 768, 4)),
    ("float32", (1, 768, 768, 4)),
]
_BATCH = 25088


class Expected(NamedTuple):
    """Seconds of a call, its roofline, and what bounds that."""

    seconds: float
    roofline: float
    bound: str

    def __str__(self) -> str:
        share = self.roofline / self.seconds
        return f"{1e3 * self.seconds:.3g}, {share:.2f}{'*' * (self.bound == 'arithmetic')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", action="store_true", help="compare with docs/data")
    if parser.parse_args().measured:
        _report("H200, Kronecker products", _of_kron())
        _report("H100, Kronecker-sparse products", _of_ksparse())
        return
    rows = [("", list(_CARDS)), ("---", ["---"] * len(_CARDS))]
    for element, batch, factors in _PRODUCTS:
        name = f"{element}, `{batch}:{factors[0][0]}^{len(factors)}`"
        rows.append((name, [kron(element, factors, batch, card) for card in _CARDS.values()]))
    for element, pattern in _PATTERNS:
        cells = [ksparse(element, pattern, _BATCH, False, card) for card in _CARDS.values()]
        rows.append((f"{element}, {pattern}", cells))
    for name, cells in rows:
        print(f"| {name} | {' | '.join(map(str, cells))} |")


def kron(element: str, factors: _Sizes, rows: int, target: Target) -> Expected:
    """What is expected of a product by square factors."""
    tensor, epilogue = _described(element)
    operation = kronop.KronMatmulOperation(
        target, None, tensor, tensor, tensor, epilogue, factors=factors
    )
    took = 0.0
    for way in passes.split(operation.description, target, rows)[0]:
        few = isinstance(way, TiledPass) and not few_rows.is_many(
            way.tiles(rows), way.blocks(target), target
        )
        if few:
            took += way.seconds(rows, target)
        else:
            cost = pass_cost.of_element(way, target)
            took += cost * rows * way.work.shape.columns_in / _bandwidth(target)
    elements = rows * math.prod(size for size, _ in factors)
    work = elements * sum(size for size, _ in factors)
    return _expected(took, 2 * elements, work, tensor.element, target)


def ksparse(
    element: str, pattern: tuple[int, ...], rows: int, batch_last: bool, target: Target
) -> Expected:
    tensor, epilogue = _described(element)
    operation = kronop.KSparseOperation(
        target, None, tensor, tensor, tensor, epilogue, pattern=pattern, batch_last=batch_last
    )
    took = choice.modelled(operation.description, target, rows)[0] / hertz_of_copies(target)
    a, b, c, d = pattern
    moved = a * d * (rows * (b + c) + b * c)
    return _expected(took, moved, rows * a * b * c * d, tensor.element, target)


def _described(element: str) -> tuple[kronop.TensorDescription, kronop.LinearCombination]:
    tensor = kronop.TensorDescription(getattr(kronop, element), kronop.RowMajor)
    return tensor, epilogue_of(tensor.element, tensor, None)


def _bandwidth(target: Target) -> float:
    """Bytes in a second, of which a cost is told."""
    return memory_bytes_per_cycle(target) * target.cores * hertz_of_copies(target)


def _expected(took: float, elements: int, work: int, element: DataType, target: Target) -> Expected:
    memory = elements * element.bytes / gpu_of(target).bandwidth
    arithmetic = work / _rate(element, target)
    bound = "memory" if memory > arithmetic else "arithmetic"
    roofline = max(memory, arithmetic)
    return Expected(max(took, roofline), roofline, bound)


def _rate(element: DataType, target: Target) -> float:
    """Multiply-adds in a second, of ordinary or tensor cores, as accurate as the ordinary ones."""
    gpu = gpu_of(target)
    cycles = target.cores * gpu.hertz
    if element.bytes == 8:
        return max(gpu.float64 * cycles, gpu.double_products)
    # TF32 multiplies at half the rate of 16-bit floats.
    halves = 2 * PRODUCTS_OF_SPLIT if element.bytes == 4 else 1
    has = target.has(Feature.wide_products if element.bytes == 4 else Feature.half_products)
    return max(gpu.float32 * cycles, gpu.products / halves * has)


def _of_kron() -> Iterator[float]:
    """Of each product measured on an H200, the expected time over it."""
    for case in json.loads((_DATA / "kron-h200.json").read_text())["cases"]:
        factors = [(p, q) for p, q in case["factors"]]
        expected = kron(case["dtype"], factors, case["rows"], _H200)
        yield 1e3 * expected.seconds / (case["kronop"]["graph_ms"] or case["kronop"]["ms"])


def _of_ksparse() -> Iterator[float]:
    with (_DATA / "ksparse-h100.csv").open() as file:
        for row in csv.DictReader(file):
            if row["algorithm"] == "kernel" and row["ms"]:
                pattern = tuple(int(row[name]) for name in "abcd")
                last = row["layout"] == "last"
                expected = ksparse(row["dtype"], pattern, int(row["batch"]), last, _H100)
                yield 1e3 * expected.seconds / float(row["graph_ms"] or row["ms"])


def _report(name: str, ratios: Iterator[float]) -> None:
    every = sorted(ratios)
    near = sum(0.8 <= ratio <= 1.25 for ratio in every)
    print(
        f"{name}: {near} of {len(every)} within a quarter; expected over measured"
        f" {statistics.median(every):.2f} in the median, {every[0]:.2f} to {every[-1]:.2f}"
    )


if __name__ == "__main__":
    main()
