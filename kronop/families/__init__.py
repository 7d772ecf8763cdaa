"""The families of operations. Their list is here and nowhere else: a new family is a line of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kronop.core.family import Family
from kronop.families import distance, kron, ksparse, quantized
from kronop.families.gemm import FAMILY as GEMM

if TYPE_CHECKING:
    from kronop.families.distance import *  # noqa: F403
    from kronop.families.gemm import *  # noqa: F403
    from kronop.families.kron import *  # noqa: F403
    from kronop.families.ksparse import *  # noqa: F403
    from kronop.families.quantized import *  # noqa: F403

FAMILIES: list[Family] = [
    kron.FAMILY,
    ksparse.FAMILY,
    distance.FAMILY,
    quantized.FAMILY,
    GEMM,
]
