"""The operation."""

from __future__ import annotations

from kronop.core.operation import Operation
from tests.families.scaled.arguments import ScaledArguments
from tests.families.scaled.declaration import SCALED
from tests.families.scaled.description import ScaledDescription


class ScaledOperation(Operation[ScaledDescription, ScaledArguments], kind=SCALED):
    """Y = epilogue(X * W), element by element; `columns` is N."""
