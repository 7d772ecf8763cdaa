"""The families of operations. Their list is here and nowhere else: a new family is a line of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kronop.core.family import Family
from kronop.families.conv2d.declaration import FAMILY as CONV2D
from kronop.families.distance.declaration import FAMILY as DISTANCE
from kronop.families.gemm.declaration import FAMILY as GEMM
from kronop.families.kron.declaration import FAMILY as KRON
from kronop.families.ksparse.declaration import FAMILY as KSPARSE
from kronop.families.quantized.declaration import FAMILY as QUANTIZED

if TYPE_CHECKING:
    from kronop.families.conv2d import *  # noqa: F403
    from kronop.families.distance import *  # noqa: F403
    from kronop.families.gemm import *  # noqa: F403
    from kronop.families.kron import *  # noqa: F403
    from kronop.families.ksparse import *  # noqa: F403
    from kronop.families.quantized import *  # noqa: F403

FAMILIES: list[Family] = [KRON, KSPARSE, DISTANCE, QUANTIZED, GEMM, CONV2D]
