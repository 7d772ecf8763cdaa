"""The declaration of the family of matrix products."""

from __future__ import annotations

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.families.gemm.size import GemmSize
from kronop.late import Later

_HERE = __package__
MATH = {
    backend: Later(f"kronop.emit.{backend}.default_math", name)
    for backend, name in (("cuda", "tensor_cores_where_faster"), ("x86", "tiles"))
}
"""The default multiply-add for each backend."""

UNIVERSAL = Kind(
    name="matrix products",
    description=Later(f"{_HERE}.description", "GemmDescription"),
    operation=Later(f"{_HERE}.operation", "GemmOperationUniversal"),
    arguments=Later(f"{_HERE}.arguments", "GemmArguments"),
    emitters={name: Emitter(f"{_HERE}.{name}.choice", math) for name, math in MATH.items()},
    inputs=("A", "B"),
    names={"Y": "C"},
    argument_names={"Z": "C", "Y": "D"},
    size=GemmSize,
    visits=True,
)
GROUPED = Kind(
    name="groups of matrix products",
    description=Later(f"{_HERE}.description", "GemmGroupedDescription"),
    operation=Later(f"{_HERE}.operation", "GemmOperationGrouped"),
    emitters={name: Emitter(f"{_HERE}.grouped_choice", math) for name, math in MATH.items()},
    inputs=("A", "B"),
    names={"Y": "C"},
    argument_names={"Z": "C", "Y": "D"},
    size=GemmSize,
)
FAMILY = Family(
    name="gemm",
    kinds=(UNIVERSAL, GROUPED),
    exports={
        "GemmGroupedArguments": f"{_HERE}.arguments",
        "GemmGroupedDescription": f"{_HERE}.description",
        "GemmOperationGrouped": f"{_HERE}.operation",
        "GemmArguments": f"{_HERE}.arguments",
        "GemmDescription": f"{_HERE}.description",
        "GemmOperationUniversal": f"{_HERE}.operation",
        **dict.fromkeys(
            (
                "BatchedIdentitySwizzle",
                "IdentitySwizzle1",
                "IdentitySwizzle2",
                "IdentitySwizzle4",
                "IdentitySwizzle8",
                "MatrixCoord",
                "SchedulerMode",
            ),
            f"{_HERE}.vocabulary",
        ),
        "ReductionArguments": f"{_HERE}.reduction_arguments",
        "ReductionOperation": f"{_HERE}.reduction_arguments",
        "gemm": f"{_HERE}.public_api",
    },
    torch={
        "matmul": f"{_HERE}.torch.functional",
        "matmul_visited": f"{_HERE}.torch.visited",
    },
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_gemm",
)
