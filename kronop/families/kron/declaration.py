"""Kronecker products: Y = epilogue(X (F1 x ... x FN)), or with X on the other side."""

from __future__ import annotations

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.late import Later

_HERE = __package__
_ON_CUDA, _ON_X86 = "kronop.emit.cuda.default_math", "kronop.emit.x86.default_math"

MATMUL = Kind(
    name="Kronecker",
    description=Later(f"{_HERE}.description", "KronMatmulDescription"),
    arguments=Later(f"{_HERE}.arguments", "KronMatmulArguments"),
    emitters={
        "cuda": Emitter(f"{_HERE}.cuda.kron_choice", Later(_ON_CUDA, "tensor_cores")),
        "x86": Emitter(f"{_HERE}.x86.kron_choice", Later(_ON_X86, "tiles_for_floats")),
    },
    inputs=("X", "F"),
    sample={"factors": ((8, 8), (8, 8))},
)
FAMILY = Family(
    name="kron",
    kinds=(MATMUL,),
    bases=("ksparse",),  # Gradients of factors are gradients of tied weights.
    exports={
        "KronMatmulArguments": f"{_HERE}.arguments",
        "KronMatmulDescription": f"{_HERE}.description",
        "KronMatmulOperation": f"{_HERE}.operation",
        "Side": f"{_HERE}.description",
        "gekmm": f"{_HERE}.api",
        "gemkm": f"{_HERE}.api",
    },
    torch={"gekmm": f"{_HERE}.torch.functional", "gemkm": f"{_HERE}.torch.functional"},
    layers=dict.fromkeys(("KroneckerEmbedding", "KroneckerLinear"), "kronop.torch.nn.kronecker"),
    jax={"gekmm": f"{_HERE}.jax", "gemkm": f"{_HERE}.jax"},
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_kron",
)
