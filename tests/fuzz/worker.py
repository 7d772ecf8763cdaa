"""A process of the random test: runs cases one after the other and tells its parent of each.

It writes a line of JSON before and after every case, so that the parent knows what ran when the
process ends in another way.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections import Counter
from typing import Any

from kronop.target import detect_x86_arch, runs
from tests import support
from tests.fuzz import attempt
from tests.fuzz.generate import Settings, make

# A process keeps what its graphs have captured: after so many cases another one goes on.
MOST_CASES = 400
_MOST_RESERVED = 2 << 30
_X86 = ("generic", "avx2", "avx512", "amx")


def settings_for(device: str, only: tuple[str, ...], problems: int | None) -> Settings:
    """What cases are drawn for on this machine."""
    has_torch = importlib.util.find_spec("torch") is not None
    if device == "cuda":
        targets: tuple[str, ...] = (support.cuda_target(),)
    else:
        here = detect_x86_arch()
        targets = tuple(f"x86-{arch}" for arch in _X86 if runs(arch, here))
    return Settings(targets=targets, only=only, has_torch=has_torch, problems=problems)


def work(settings: Settings, seed: int, process: int, start: int, seconds: float) -> int:
    """Runs cases from number `start` on, until the time is over; the exit status of the process."""
    end = time.monotonic() + seconds
    tell, sys.stdout = sys.stdout, sys.stderr
    for index in range(start, start + MOST_CASES):
        if time.monotonic() >= end:
            break
        case = make(f"{seed}.{process}.{index}", settings)
        _tell(tell, event="begin", case=case.name, about=str(case.problem))
        seen: Counter[str] = Counter()
        with attempt.watching(seen):
            outcome = attempt.run(case)
        fault = _fault(settings)
        troubles = [*outcome.troubles, *([fault] if fault else [])]
        _tell(
            tell,
            event="end",
            case=case.name,
            calls=outcome.calls,
            troubles=troubles,
            styles=dict(seen),
        )
        if fault:
            return 3
    return 0


def _tell(stream: Any, **message: Any) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _fault(settings: Settings) -> str:
    """Why nothing more can run in this process: a fault ends its context of the GPU."""
    if not settings.on_gpu:
        return ""
    import torch

    try:
        torch.cuda.synchronize()
        if torch.cuda.memory_reserved() > _MOST_RESERVED:
            torch.cuda.empty_cache()
    except Exception as error:
        return f"the GPU's context is dead: {str(error).splitlines()[0]}"
    return ""
