"""Y[m, n] = epilogue(X[m, n] W[m, n])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.shared import check_operands, check_sizes
from kronop.descriptions.tensor import TensorDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledDescription(Shaped):
    """Attributes: as of other families; `columns`: N."""

    X: TensorDescription
    W: TensorDescription
    Y: TensorDescription
    epilogue: Epilogue
    columns: int

    def __post_init__(self) -> None:
        check_operands(self, "XW")
        check_sizes("columns", ("N",), (self.columns,))

    def shapes(self, size: int) -> dict[str, Any]:
        return dict.fromkeys("XWY", (size, self.columns))

    def reference(
        self, x: Any, w: Any, z: Any = None, output_op: EpilogueArguments | None = None
    ) -> Any:
        wide = widen(self.math.element_accumulator)
        return finish(self.epilogue, output_op, np.asarray(x, wide) * np.asarray(w, wide), z)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledProblem:
    """Addresses of contiguous operands, z 0 where beta is; `items`: elements of each."""

    items: int
    x: int
    w: int
    y: int
    scalars: tuple[float, ...]
    threads: int
    z: int = 0
