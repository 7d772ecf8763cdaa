"""Kronecker-sparse products: Y = epilogue(X K'), chains of them, and gradients of their weights."""

from __future__ import annotations

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.late import Later

_HERE = __package__
_ON_CUDA, _ON_X86 = "kronop.emit.cuda.default_math", "kronop.emit.x86.default_math"
_FLOATS = Later(_ON_CUDA, "tensor_cores_for_floats")

PRODUCT = Kind(
    name="Kronecker-sparse",
    description=Later(f"{_HERE}.description", "KSparseDescription"),
    arguments=Later(f"{_HERE}.arguments", "KSparseArguments"),
    emitters={
        "cuda": Emitter(f"{_HERE}.cuda.choice", _FLOATS),
        "x86": Emitter(f"{_HERE}.x86.ksparse_choice", Later(_ON_X86, "tiles")),
    },
    inputs=("X", "W"),
    sample={"pattern": (2, 8, 8, 2)},
)
CHAIN = Kind(
    name="chain of Kronecker-sparse",
    description=Later(f"{_HERE}.description", "KSparseChainDescription"),
    arguments=Later(f"{_HERE}.arguments", "KSparseChainArguments"),
    emitters={
        "cuda": Emitter(f"{_HERE}.cuda.chain_cuts", _FLOATS),
        "x86": Emitter(f"{_HERE}.x86.ksparse_fused", Later("kronop.emit.default_math", "ordinary")),
    },
    inputs=("X", "W"),
    sample={"patterns": ((2, 8, 8, 2), (2, 8, 8, 2))},
)
GRADIENT = Kind(
    name="gradient of weights",
    description=Later(f"{_HERE}.gradient_description", "KSparseGradientDescription"),
    arguments=Later(f"{_HERE}.gradient_arguments", "KSparseGradientArguments"),
    emitters={
        "cuda": Emitter(f"{_HERE}.cuda.gradient_choice", Later(_ON_CUDA, "every_tensor_core")),
    },
    inputs=("X", "G"),
    sample={"pattern": (2, 8, 8, 2)},
)
FAMILY = Family(
    name="ksparse",
    kinds=(PRODUCT, CHAIN, GRADIENT),
    exports={
        "KSparseArguments": f"{_HERE}.arguments",
        "KSparseChainArguments": f"{_HERE}.arguments",
        "KSparseChainDescription": f"{_HERE}.description",
        "KSparseChainOperation": f"{_HERE}.operation",
        "KSparseDescription": f"{_HERE}.description",
        "KSparseGradientArguments": f"{_HERE}.gradient_arguments",
        "KSparseGradientDescription": f"{_HERE}.gradient_description",
        "KSparseGradientOperation": f"{_HERE}.operation",
        "KSparseOperation": f"{_HERE}.operation",
        "ksmm": f"{_HERE}.api",
        "weight_gradient": f"{_HERE}.api",
    },
    torch={"ksmm": f"{_HERE}.torch.functional"},
    layers={"KSLinear": "kronop.torch.nn.kslinear"},
    jax={"ksmm": f"{_HERE}.jax"},
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_ksparse",
)
