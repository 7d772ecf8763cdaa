"""Public names, for type checkers; kronop imports them at their first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kronop.families.gemm.arguments import GemmArguments as GemmArguments
    from kronop.families.gemm.arguments import GemmGroupedArguments as GemmGroupedArguments
    from kronop.families.gemm.description import GemmDescription as GemmDescription
    from kronop.families.gemm.description import GemmGroupedDescription as GemmGroupedDescription
    from kronop.families.gemm.operation import GemmOperationGrouped as GemmOperationGrouped
    from kronop.families.gemm.operation import GemmOperationUniversal as GemmOperationUniversal
    from kronop.families.gemm.public_api import gemm as gemm
    from kronop.families.gemm.reduction_arguments import ReductionArguments as ReductionArguments
    from kronop.families.gemm.reduction_arguments import ReductionOperation as ReductionOperation
    from kronop.families.gemm.vocabulary import BatchedIdentitySwizzle as BatchedIdentitySwizzle
    from kronop.families.gemm.vocabulary import IdentitySwizzle1 as IdentitySwizzle1
    from kronop.families.gemm.vocabulary import IdentitySwizzle2 as IdentitySwizzle2
    from kronop.families.gemm.vocabulary import IdentitySwizzle4 as IdentitySwizzle4
    from kronop.families.gemm.vocabulary import IdentitySwizzle8 as IdentitySwizzle8
    from kronop.families.gemm.vocabulary import MatrixCoord as MatrixCoord
    from kronop.families.gemm.vocabulary import SchedulerMode as SchedulerMode
