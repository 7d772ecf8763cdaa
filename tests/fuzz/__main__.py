"""The random test on demand: `python -m tests.fuzz --minutes 60`, from the root of the checkout."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter

from tests.fuzz.case import FAMILIES

_GPU_PROCESSES = 12


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long")
    parser.add_argument("--seed", type=int, help="of all cases; another one each time by default")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, help="that run side by side")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--problems", type=int, help="so many in all, whose cases share kernels")
    parser.add_argument("--case", nargs="+", help="run these again instead, as they were named")
    parser.add_argument("--plan", type=int, help="plan so many cases instead, on any machine")
    parser.add_argument("--target", help="a GPU to plan for, in whose place this one computes")
    parser.add_argument("--worker", nargs=3, type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def _again(arguments: argparse.Namespace) -> str:
    """The options, besides a case's name, that decide what the case is."""
    options = f"--device {arguments.device}"
    if sorted(arguments.only) != sorted(FAMILIES):
        options += f" --only {' '.join(arguments.only)}"
    if arguments.problems is not None:
        options += f" --problems {arguments.problems}"
    if arguments.target is not None:
        options += f" --target {arguments.target}"
    return options


def _run_cases(arguments: argparse.Namespace) -> int:
    """Runs the named cases in this process, and prints their problems, calls and plans."""
    from tests.fuzz import attempt, plans, worker
    from tests.fuzz.generate import make

    _stand_in(arguments)
    settings = worker.settings_for(arguments.device, _families(arguments), arguments.problems)
    bad = 0
    for name in arguments.case:
        case = make(name, settings)
        print(case.problem)
        for call in case.calls:
            print(f"  {call}")
            if not case.problem.backward:
                operation = plans.operation_of(case.problem, call)
                print(f"  {operation.plan_for(plans.rows_of(case.problem, call))}")
        outcome = attempt.run(case)
        bad += bool(outcome.troubles)
        print("\n".join(outcome.troubles) or f"{outcome.calls} calls, nothing wrong")
    return 1 if bad else 0


def _plan(arguments: argparse.Namespace) -> int:
    """Prints how many cases reach each style of a target's steps, and few cases that reach all."""
    from tests.fuzz import coverage
    from tests.fuzz.generate import Settings

    settings = Settings(targets=(arguments.target or "sm_90a",), only=_families(arguments))
    names = [f"{arguments.seed or 0}.0.{index}" for index in range(arguments.plan)]
    count, few = coverage.tally(names, settings)
    for feature, cases in sorted(count.items()):
        print(f"{cases:8} {feature}")
    print("all of them:", *few)
    return 0


def _families(arguments: argparse.Namespace) -> tuple[str, ...]:
    return tuple(item for item in FAMILIES if item in arguments.only)


def _worker(arguments: argparse.Namespace) -> int:
    from tests.fuzz import worker

    _stand_in(arguments)
    settings = worker.settings_for(arguments.device, _families(arguments), arguments.problems)
    process, start, seconds = arguments.worker
    return worker.work(settings, arguments.seed, int(process), int(start), seconds)


def _stand_in(arguments: argparse.Namespace) -> None:
    from tests import in_place

    if arguments.target is not None:
        in_place.stand_in(arguments.target)


def _prepare(arguments: argparse.Namespace) -> None:
    """Sets the environment variables that the processes inherit."""
    threads = max(2, (os.cpu_count() or 1) // arguments.processes)
    # With OpenMP's default policy, processes that share cores would spin on them while they wait.
    for name, value in (("OMP_NUM_THREADS", str(threads)), ("OMP_WAIT_POLICY", "passive")):
        os.environ.setdefault(name, value)


def _supervise(arguments: argparse.Namespace) -> int:
    from tests.fuzz.supervisor import Supervisor

    if arguments.seed is None:
        arguments.seed = int(time.time())
    default = _GPU_PROCESSES if arguments.device == "cuda" else min(4, os.cpu_count() or 1)
    arguments.processes = arguments.processes or default
    _prepare(arguments)
    options = ["--seed", str(arguments.seed), *_again(arguments).split()]

    def command(place: int, start: int, seconds: float) -> list[str]:
        own = [str(place), str(start), str(seconds)]
        return [sys.executable, "-m", "tests.fuzz", *options, "--worker", *own]

    print(f"seed {arguments.seed}, {arguments.processes} processes, {arguments.minutes} minutes")
    tell = lambda line: print(line, flush=True)  # noqa: E731
    found = Supervisor(command, arguments.processes, 60 * arguments.minutes, tell=tell).run()
    print(f"\n{found.cases} cases, {found.calls} calls, {found.restarts} restarts")
    print(f"{len(found.styles)} styles of steps:")
    for style, count in sorted(found.styles.items()):
        print(f"{count:8} {style}")
    print(f"{len(found.bad)} bad")
    for name, _ in Counter(name for name, _ in found.bad).items():
        print(f"  python -m tests.fuzz {_again(arguments)} --case {name}")
    return 1 if found.bad or not found.cases else 0


def main() -> int:
    arguments = _arguments()
    if arguments.worker:
        return _worker(arguments)
    if arguments.plan:
        return _plan(arguments)
    # The cases' thousands of kernels are never used again: they stay out of the user's cache.
    with tempfile.TemporaryDirectory(prefix="kronop-fuzz-") as folder:
        os.environ.setdefault("KRONOP_CACHE_DIR", folder)
        if arguments.device == "cuda":
            from kronop import compiler

            status = compiler.cuda_devices()
            if not status:
                print(f"no GPU: {status.reason}", file=sys.stderr)
                return 2
        return _run_cases(arguments) if arguments.case else _supervise(arguments)


if __name__ == "__main__":
    sys.exit(main())
