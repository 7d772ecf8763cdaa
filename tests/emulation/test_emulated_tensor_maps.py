"""Copies by tensor maps of one to five axes, of boxes and of pixels, on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kronop.target import Target
from tests.emulation.emulator import run_alone
from tests.tensor_map_cases import CASES, SOURCE, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_copies(folder: Path, case: Case) -> None:
    room, _ = case.tensor()
    copied = np.full(case.expected().nbytes, 90, np.uint8)
    launch = case.launch(room.ctypes.data, copied.ctypes.data)
    if run_alone(SOURCE, Target.parse("sm_90a"), launch, folder):
        case.check(copied)
