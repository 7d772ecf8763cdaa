"""Public names, for type checkers; kronop imports them at their first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kronop.families.distance.api import cdist as cdist
    from kronop.families.distance.api import kernel_matmul as kernel_matmul
    from kronop.families.distance.api import kernel_matrix as kernel_matrix
    from kronop.families.distance.api import kernels as kernels
    from kronop.families.distance.arguments import DistanceArguments as DistanceArguments
    from kronop.families.distance.arguments import KernelMatmulArguments as KernelMatmulArguments
    from kronop.families.distance.description import DistanceDescription as DistanceDescription
    from kronop.families.distance.description import (
        KernelMatmulDescription as KernelMatmulDescription,
    )
    from kronop.families.distance.descriptor import InnerOperator as InnerOperator
    from kronop.families.distance.descriptor import KernelDescriptor as KernelDescriptor
    from kronop.families.distance.descriptor import KernelType as KernelType
    from kronop.families.distance.descriptor import PowerType as PowerType
    from kronop.families.distance.descriptor import (
        kernel_descriptor_l1_norm as kernel_descriptor_l1_norm,
    )
    from kronop.families.distance.descriptor import (
        kernel_descriptor_l2_norm as kernel_descriptor_l2_norm,
    )
    from kronop.families.distance.descriptor import (
        kernel_descriptor_laplace_l1 as kernel_descriptor_laplace_l1,
    )
    from kronop.families.distance.descriptor import (
        kernel_descriptor_laplace_l2 as kernel_descriptor_laplace_l2,
    )
    from kronop.families.distance.descriptor import kernel_descriptor_mma as kernel_descriptor_mma
    from kronop.families.distance.descriptor import (
        kernel_descriptor_p_norm as kernel_descriptor_p_norm,
    )
    from kronop.families.distance.gradient_api import cdist_grad as cdist_grad
    from kronop.families.distance.gradient_arguments import (
        DistanceGradientArguments as DistanceGradientArguments,
    )
    from kronop.families.distance.gradient_description import (
        DistanceGradientDescription as DistanceGradientDescription,
    )
    from kronop.families.distance.operation import (
        DistanceGradientOperation as DistanceGradientOperation,
    )
    from kronop.families.distance.operation import DistanceOperation as DistanceOperation
    from kronop.families.distance.operation import KernelMatmulOperation as KernelMatmulOperation
    from kronop.families.distance.reduce_api import kernel_reduce as kernel_reduce
    from kronop.families.distance.run_api import pre_compile_descriptors as pre_compile_descriptors
    from kronop.families.distance.run_api import run_kernel as run_kernel
