"""Kronecker products: Y = epilogue(X (F1 x ... x FN)), or with X on the other side."""

from __future__ import annotations

from kronop.core.family import Family, Kind, Later

_HERE = __package__

MATMUL = Kind(
    name="Kronecker",
    description=Later(f"{_HERE}.description", "KronMatmulDescription"),
    arguments=Later(f"{_HERE}.arguments", "KronMatmulArguments"),
    emitters={
        "cuda": Later(f"{_HERE}.cuda.emitter", "CudaKronEmitter"),
        "x86": Later(f"{_HERE}.x86.emitter", "X86KronEmitter"),
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
    jax={"gekmm": f"{_HERE}.jax", "gemkm": f"{_HERE}.jax"},
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_kron",
)
