"""The declaration of the family of distances and kernel matrices."""

from __future__ import annotations

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.families.distance.gradient_size import GradientSize
from kronop.families.distance.product_size import KernelMatmulSize
from kronop.families.distance.size import DistanceSize
from kronop.late import Later

_HERE = __package__


def _emitters(search: str) -> dict[str, Emitter]:
    """The emitters whose plans are searched for by each target's module of that name."""
    default = Later("kronop.emit.default_math", "ordinary")
    return {backend: Emitter(f"{_HERE}.{backend}.{search}", default) for backend in ("cuda", "x86")}


MATRIX = Kind(
    name="distances",
    description=Later(f"{_HERE}.description", "DistanceDescription"),
    arguments=Later(f"{_HERE}.arguments", "DistanceArguments"),
    emitters=_emitters("choice"),
    inputs=("X1", "X2"),
    size=DistanceSize,
    # The linear kernel is a sum of products, as the samples of the other families are.
    sample={"kernel": Later(f"{_HERE}.samples", "LINEAR")},
)
GRADIENT = Kind(
    name="gradients of distances",
    description=Later(f"{_HERE}.gradient_description", "DistanceGradientDescription"),
    arguments=Later(f"{_HERE}.gradient_arguments", "DistanceGradientArguments"),
    emitters=_emitters("gradient_choice"),
    inputs=("A", "B", "C", "D"),
    size=GradientSize,
    sample={"power": Later(f"{_HERE}.samples", "SQUARES")},
)
PRODUCT = Kind(
    name="products of kernel matrices",
    description=Later(f"{_HERE}.description", "KernelMatmulDescription"),
    arguments=Later(f"{_HERE}.arguments", "KernelMatmulArguments"),
    emitters=_emitters("product_choice"),
    inputs=("X1", "X2", "V"),
    size=KernelMatmulSize,
    sample={"kernel": Later(f"{_HERE}.samples", "LINEAR")},
)
FAMILY = Family(
    name="distance",
    kinds=(MATRIX, PRODUCT, GRADIENT),
    exports={
        **dict.fromkeys(
            (
                "InnerOperator",
                "KernelDescriptor",
                "KernelType",
                "PowerType",
                "kernel_descriptor_l1_norm",
                "kernel_descriptor_l2_norm",
                "kernel_descriptor_laplace_l1",
                "kernel_descriptor_laplace_l2",
                "kernel_descriptor_mma",
                "kernel_descriptor_p_norm",
            ),
            f"{_HERE}.descriptor",
        ),
        "pre_compile_descriptors": f"{_HERE}.run_api",
        "run_kernel": f"{_HERE}.run_api",
        "DistanceArguments": f"{_HERE}.arguments",
        "DistanceDescription": f"{_HERE}.description",
        "DistanceGradientArguments": f"{_HERE}.gradient_arguments",
        "DistanceGradientDescription": f"{_HERE}.gradient_description",
        "DistanceGradientOperation": f"{_HERE}.operation",
        "DistanceOperation": f"{_HERE}.operation",
        "KernelMatmulArguments": f"{_HERE}.arguments",
        "KernelMatmulDescription": f"{_HERE}.description",
        "KernelMatmulOperation": f"{_HERE}.operation",
        "cdist": f"{_HERE}.api",
        "cdist_grad": f"{_HERE}.gradient_api",
        "kernel_matmul": f"{_HERE}.api",
        "kernel_matrix": f"{_HERE}.api",
        "kernel_reduce": f"{_HERE}.reduce_api",
        "kernels": f"{_HERE}.api",
    },
    torch={
        "cdist": f"{_HERE}.torch.functional",
        "kernel_matmul": f"{_HERE}.torch.functional",
        "kernel_matrix": f"{_HERE}.torch.functional",
    },
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_distance",
)
