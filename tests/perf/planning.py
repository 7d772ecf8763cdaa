"""Planning, as JSON: `python -m tests.perf.planning [--only WORD ...] [--random N] [--dump FILE]`.

CPU milliseconds that the first plan of an operation takes, and that it takes where an earlier
process planned the same, for a sample of every family, element type and target: the worst of each
family, type and target, and the worst of all by name. Each is timed in a fork of a process that
has imported everything and planned nothing. `--dump` times nothing: it writes a digest of every
plan, for many rows and for others, and of 16 candidates, so that `diff` tells two planners apart.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kronop
import kronop.emit
import kronop.families
from kronop import knobs
from kronop.compiler import Cache
from kronop.descriptions.datatype import TENSOR_TYPES, DataType
from kronop.emit.render import render
from tests import support

_TARGETS = ("sm_80", "sm_90a", "x86-avx512", "x86-amx", "x86-avx2")
_KRON = {
    "8^5": [(8, 8)] * 5,
    "2^12": [(2, 2)] * 12,
    "2^20": [(2, 2)] * 20,
    "3^12": [(3, 3)] * 12,
    "16^4": [(16, 16)] * 4,
    "64^3": [(64, 64)] * 3,
    "50x20": [(50, 50), (20, 20)],
    "51:21x50:20": [(51, 21), (50, 20)],
    "7:3x9:11x13:5": [(7, 3), (9, 11), (13, 5)],
}
_KSPARSE = {"4,256,256,4": (4, 256, 256, 4), "1,1024,256,8": (1, 1024, 256, 8)}
_CHAINS = {
    "up": ((6, 64, 64, 1), (1, 768, 192, 2)),
    "butterfly": ((4, 256, 256, 4), (1, 1024, 1024, 4)),
    "ragged": ((2, 20, 16, 3), (4, 16, 10, 3), (1, 9, 24, 8)),
}
_TIED = {"8x8of8^5": (64, 64, 64, 64), "16of16^4": (256, 16, 16, 16), "64last": (4096, 64, 64, 1)}
_ROWS = (1, 20, 300, 4096, 10**6)

Case = tuple[str, Callable[[], Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="cases whose names have these words")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="and N random ones")
    parser.add_argument("--dump", metavar="FILE")
    options = parser.parse_args()
    cases = [
        (name, make)
        for name, make in (*sample(), *others(options.random))
        if set(options.only) <= set(name.split())
    ]
    if options.dump:
        with open(options.dump, "w") as file:
            for name, make in cases:
                print(name, *_digests(name, make), file=file, flush=True)
    else:
        print(json.dumps(_report(cases), indent=2))


def sample() -> Iterator[Case]:
    """(name, what makes the operation), the same ones every time."""
    tied = {"tied": True}
    for target in _TARGETS:
        for element in TENSOR_TYPES.values():
            for alignment in (1, 16 // element.bytes):
                here = (target, element, alignment)
                yield from _named("kron", support.kron_operation, _KRON, here)
                yield from _named("ksparse", support.ksparse_operation, _KSPARSE, here)
                yield from _named("chain", support.chain_operation, _CHAINS, here)
                yield from _named("gradient", support.gradient_operation, _KSPARSE, here)
                yield from _named("tied", support.gradient_operation, _TIED, here, **tied)


def _named(
    family: str, make: Any, shapes: dict[str, Any], here: tuple[str, DataType, int], **options: Any
) -> Iterator[Case]:
    target, element, alignment = here
    for name, shape in shapes.items():
        yield (
            f"{family} {name} {element.short} aligned{alignment} {target}",
            lambda shape=shape: make(target, element, shape, alignment=alignment, **options),
        )


def others(count: int) -> Iterator[Case]:
    """Random ones, the same every time."""
    for seed in range(count):
        yield f"random {seed}", lambda seed=seed: random_operation(random.Random(seed))


def random_operation(chance: random.Random, targets: Sequence[str] = _TARGETS) -> Any:
    target, element = chance.choice(targets), chance.choice([*TENSOR_TYPES.values()])
    here = {"alignment": chance.choice((1, 1, 2, 4)), "layout": chance.choice([*kronop.Layout])}
    last = {"batch_last": chance.random() < 0.5}
    pattern = tuple(chance.choice((1, 2, 3, 4, 6, 16, 48, 64, 100, 192, 256)) for _ in range(4))
    a, b, _, d = pattern
    match chance.choice(("kron", "kron", "ksparse", "chain", "gradient", "tied")):
        case "kron":
            sizes = chance.choice((range(2, 6), range(2, 20), range(4, 140)))
            factors = [(chance.choice(sizes), chance.choice(sizes)) for _ in range(4)]
            factors = factors[: chance.randint(1, 4)]
            if chance.random() < 0.5:
                factors = factors[:1] * chance.randint(1, 6)
            here |= {"side": chance.choice([*kronop.Side])}
            return support.kron_operation(target, element, factors, **here)
        case "ksparse":
            return support.ksparse_operation(target, element, pattern, **here, **last)
        case "chain":
            patterns = (pattern, (1, 48, a * b * d, 1))
            return support.chain_operation(target, element, patterns, **here, **last)
        case "gradient":
            return support.gradient_operation(target, element, pattern, **here, **last)
        case _:
            return support.gradient_operation(target, element, pattern, tied=True, **here)


def _digests(name: str, make: Callable[[], Any]) -> Iterator[str]:
    """Of each plan: what it is for, how many steps it has, digests of steps and of rejections."""
    try:
        operation = make()
    except kronop.KronopError as error:
        yield f"refused:{_digest(str(error))}"
        return
    yield _told("plan", operation.plan)
    for plan in operation.candidates(16):
        yield _told("candidate", plan)
    chance = random.Random(name)
    for rows in chance.sample(_ROWS, 2):
        yield _told(f"rows{rows}", operation.candidates(1, rows)[0])
    for place, plan in enumerate(operation.candidates(16, chance.choice(_ROWS))):
        yield _told(f"of-rows{place}", plan)


def _told(purpose: str, plan: Any) -> str:
    sources = repr([source.text for source in render(plan)])
    return f"{purpose}:{len(plan.steps)}:{_digest(sources)}:{_digest(plan.explain())}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _report(cases: list[Case]) -> dict[str, Any]:
    """Worst times by family, element type and target, and the slowest cases."""
    for room in (kronop.emit, kronop.families):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if "torch" not in module.name.split("."):
                importlib.import_module(module.name)
    times = {name: measured for name, make in cases if (measured := _measure(make))}
    worst: dict[str, Any] = {}
    for name, measured in times.items():
        words = name.split()
        group = " ".join((words[0], *words[2:3], *words[4:]))
        row = worst.setdefault(group, {"cold_ms": 0.0, "warm_ms": 0.0})
        for key, value in measured.items():
            row[key] = max(row[key], value)
    slowest = {
        key: dict(sorted(((n, t[key]) for n, t in times.items()), key=lambda i: -i[1])[:12])
        for key in ("cold_ms", "warm_ms")
    }
    return {"cases": len(times), "worst": worst, "slowest": slowest}


def _measure(make: Callable[[], Any]) -> dict[str, float] | None:
    """Of two processes, one after the other, with an empty cache; None where it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder))
        cache.clear()
        cache.close()
        cold, warm = _in_a_fork(make, folder), _in_a_fork(make, folder)
    return None if cold is None or warm is None else {"cold_ms": cold, "warm_ms": warm}


def _in_a_fork(make: Callable[[], Any], folder: str) -> float | None:
    """CPU milliseconds of `make` in a new process."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        gc.collect()  # Now, not while the clock runs, pages that are shared become this process's.
        with knobs.using(cache_dir=Path(folder)):
            begin = time.process_time()
            try:
                make()
                told = f"{(time.process_time() - begin) * 1e3:.3f}"
            except kronop.KronopError:
                told = ""
        os.write(theirs, told.encode())
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return float(told) if told else None


if __name__ == "__main__":
    main()
