"""What planning may ask of rooms that it must not import: the driver's, and the compilers'.

Planning itself reads no driver, no environment and no disk. kronop/__init__.py puts the one who
answers behind each question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# The Target of the card at hand.
card_at_hand: list[Callable[[], Any]] = []
# Why there are no headers of CUTLASS; empty if there are.
cutlass_missing: list[Callable[[], str]] = []
