"""Public names, for type checkers; kronop imports them at their first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kronop.families.kron.api import gekmm as gekmm
    from kronop.families.kron.api import gemkm as gemkm
    from kronop.families.kron.arguments import KronMatmulArguments as KronMatmulArguments
    from kronop.families.kron.description import KronMatmulDescription as KronMatmulDescription
    from kronop.families.kron.description import Side as Side
    from kronop.families.kron.operation import KronMatmulOperation as KronMatmulOperation
