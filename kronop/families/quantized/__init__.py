"""Public names, for type checkers; kronop imports them at their first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kronop.families.quantized.api import quantized_gemkm as quantized_gemkm
    from kronop.families.quantized.arguments import QuantizedKronArguments as QuantizedKronArguments
    from kronop.families.quantized.description import (
        QuantizedKronDescription as QuantizedKronDescription,
    )
    from kronop.families.quantized.operation import QuantizedKronOperation as QuantizedKronOperation
