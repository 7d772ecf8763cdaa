"""The small descriptions that the support matrix and the tests of every family start from."""

from __future__ import annotations

from kronop.families.distance.form import TermKind
from kronop.families.distance.kernels import Linear

LINEAR = Linear().bound().form
# The derivative of a square is a difference, so that sums are of products.
SQUARES = TermKind.Two
