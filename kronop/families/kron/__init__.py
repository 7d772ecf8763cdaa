"""Kronecker products: Y = epilogue(X (F1 x ... x FN)), or with X on the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.late import Later

if TYPE_CHECKING:
    from kronop.families.kron.api import gekmm as gekmm
    from kronop.families.kron.api import gemkm as gemkm
    from kronop.families.kron.arguments import KronMatmulArguments as KronMatmulArguments
    from kronop.families.kron.description import KronMatmulDescription as KronMatmulDescription
    from kronop.families.kron.description import Side as Side
    from kronop.families.kron.operation import KronMatmulOperation as KronMatmulOperation

_HERE, _MATH = __name__, "kronop.emit.default_math"

MATMUL = Kind(
    name="Kronecker",
    description=Later(f"{_HERE}.description", "KronMatmulDescription"),
    arguments=Later(f"{_HERE}.arguments", "KronMatmulArguments"),
    emitters={
        "cuda": Emitter(f"{_HERE}.cuda.kron_choice", Later(_MATH, "tensor_cores")),
        "x86": Emitter(f"{_HERE}.x86.kron_choice", Later(_MATH, "tiles_for_floats")),
    },
    inputs=("X", "F"),
    sample={"factors": ((8, 8), (8, 8))},
)
FAMILY = Family(
    name="kron",
    kinds=(MATMUL,),
    exports={
        "KronMatmulArguments": f"{_HERE}.arguments",
        "KronMatmulDescription": f"{_HERE}.description",
        "KronMatmulOperation": f"{_HERE}.operation",
        "Side": f"{_HERE}.description",
        "gekmm": f"{_HERE}.api",
        "gemkm": f"{_HERE}.api",
    },
    torch={"gekmm": f"{_HERE}.torch.functional", "gemkm": f"{_HERE}.torch.functional"},
    jax={"gekmm": f"{_HERE}.jax", "gemkm": f"{_HERE}.jax"},
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_kron",
)
