"""A process of the random test: runs cases one after another and reports each to its parent.

It writes a line of JSON before and after every case, so that the parent knows which case was
running if the process crashes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections import Counter
from typing import Any

from tests import support
from tests.fuzz import attempt
from tests.fuzz.generate import Settings, make

# A process never frees memory that its CUDA graphs have captured, so another process takes over
# after this many cases.
MOST_CASES = 400
_MOST_RESERVED = 2 << 30


def settings_for(device: str, only: tuple[str, ...], problems: int | None) -> Settings:
    """The settings for drawing cases that this machine can run."""
    has_torch = importlib.util.find_spec("torch") is not None
    if device == "cuda":
        targets: tuple[str, ...] = (support.cuda_target(),)
    else:
        targets = tuple(support.cpu_targets())
    return Settings(targets=targets, only=only, has_torch=has_torch, problems=problems)


def work(settings: Settings, seed: int, process: int, start: int, seconds: float) -> int:
    """Runs cases from number `start` on until the time is over; returns the exit status."""
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
    """Why this process can't go on, if a fault has killed its GPU context; else ""."""
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
