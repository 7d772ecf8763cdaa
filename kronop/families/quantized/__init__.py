"""Kronecker products whose rows are rounded to integers: FlatQuant's, in one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.late import Later

if TYPE_CHECKING:
    from kronop.families.quantized.api import quantized_gemkm as quantized_gemkm
    from kronop.families.quantized.arguments import (
        QuantizedKronArguments as QuantizedKronArguments,
    )
    from kronop.families.quantized.description import (
        QuantizedKronDescription as QuantizedKronDescription,
    )
    from kronop.families.quantized.operation import (
        QuantizedKronOperation as QuantizedKronOperation,
    )

_HERE, _MATH = __name__, "kronop.emit.default_math"

QUANTIZED = Kind(
    name="quantized Kronecker",
    description=Later(f"{_HERE}.description", "QuantizedKronDescription"),
    emitters={
        "cuda": Emitter(f"{_HERE}.cuda.choice", Later(_MATH, "tensor_cores")),
        "x86": Emitter(f"{_HERE}.x86.choice", Later(_MATH, "tiles_for_floats")),
    },
    inputs=("X", "F"),
    sample={
        "factors": ((8, 8), (8, 8)),
        "bits": 8,
        "Y": Later(f"{_HERE}.samples", "Y"),
        "epilogue": Later(f"{_HERE}.samples", "EPILOGUE"),
    },
)
FAMILY = Family(
    name="quantized",
    kinds=(QUANTIZED,),
    exports={
        "QuantizedKronArguments": f"{_HERE}.arguments",
        "QuantizedKronDescription": f"{_HERE}.description",
        "QuantizedKronOperation": f"{_HERE}.operation",
        "quantized_gemkm": f"{_HERE}.api",
    },
    torch={"quantized_gemkm": f"{_HERE}.torch"},
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_quantized",
)
