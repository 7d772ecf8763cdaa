"""Random distances, kernel matrices, their products and gradients, and quantized products,
against their definitions: `python -m tests.families --device cuda --minutes 5`.

A case of distances draws a kernel (of one or several terms), an element type, sizes, layouts,
batches, values as numbers or tensors, and a result with guards around it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter

from kronop.machine import Feature
from kronop.target import Target
from tests import in_place
from tests.families.random_cases import KINDS, make
from tests.fuzz import coverage, plans


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--target", help="a GPU to plan for, in whose place this one computes")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--case", help="run this one alone, as it was named")
    parser.add_argument("--plan", type=int, help="plan so many of each kind for a GPU instead")
    options = parser.parse_args()
    if options.plan is not None:
        names = [f"{kind}.{options.seed}.{n}" for kind in options.only for n in range(options.plan)]
        found = {name: plans.reached(make(name).plan("sm_90a")) for name in names}
        print("\n".join(sorted(set().union(*found.values()))), *coverage.few_of(found), sep="\n")
        return 0
    if options.target is not None:
        in_place.stand_in(options.target)
    if options.case is not None:
        case = make(options.case)
        print(case, case.run(options.device) or "nothing wrong", sep="\n")
        return 0
    bad, end, count = 0, time.monotonic() + options.minutes * 60, Counter[str]()
    for turn in itertools.count():
        number, at = divmod(turn, len(options.only))
        if time.monotonic() > end:
            break
        kind = options.only[at]
        case = make(name := f"{kind}.{options.seed}.{number}")
        if case.element.startswith("float8") and not _has_float8(options):
            continue
        count[f"{kind} {case.element}"] += 1
        trouble = case.run(options.device)
        if trouble:
            bad += 1
            print(f"--case {name}: {case}\n    {trouble}", flush=True)
    print(f"seed {options.seed}: {dict(count)}, {bad} bad")
    return 1 if bad else 0


def _has_float8(options: argparse.Namespace) -> bool:
    return options.target is None or Target.parse(options.target).has(Feature.float8)


if __name__ == "__main__":
    raise SystemExit(main())
