"""Public names, for type checkers; kronop imports them at their first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kronop.families.ksparse.api import ksmm as ksmm
    from kronop.families.ksparse.api import weight_gradient as weight_gradient
    from kronop.families.ksparse.arguments import KSparseArguments as KSparseArguments
    from kronop.families.ksparse.arguments import KSparseChainArguments as KSparseChainArguments
    from kronop.families.ksparse.description import (
        KSparseChainDescription as KSparseChainDescription,
    )
    from kronop.families.ksparse.description import KSparseDescription as KSparseDescription
    from kronop.families.ksparse.gradient_arguments import (
        KSparseGradientArguments as KSparseGradientArguments,
    )
    from kronop.families.ksparse.gradient_description import (
        KSparseGradientDescription as KSparseGradientDescription,
    )
    from kronop.families.ksparse.operation import KSparseChainOperation as KSparseChainOperation
    from kronop.families.ksparse.operation import (
        KSparseGradientOperation as KSparseGradientOperation,
    )
    from kronop.families.ksparse.operation import KSparseOperation as KSparseOperation
