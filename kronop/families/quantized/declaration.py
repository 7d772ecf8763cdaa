"""Kronecker products whose rows are rounded to integers: FlatQuant's, in one kernel."""

from __future__ import annotations

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.late import Later

_HERE = __package__
_ON_CUDA, _ON_X86 = "kronop.emit.cuda.default_math", "kronop.emit.x86.default_math"

QUANTIZED = Kind(
    name="quantized Kronecker",
    description=Later(f"{_HERE}.description", "QuantizedKronDescription"),
    emitters={
        "cuda": Emitter(f"{_HERE}.cuda.choice", Later(_ON_CUDA, "tensor_cores")),
        "x86": Emitter(f"{_HERE}.x86.choice", Later(_ON_X86, "tiles_for_floats")),
    },
    inputs=("X", "F"),
    sample={
        "factors": ((8, 8), (8, 8)),
        "bits": 8,
        "Y": Later(f"{_HERE}.description", "Y"),
        "epilogue": Later(f"{_HERE}.description", "EPILOGUE"),
    },
)
FAMILY = Family(
    name="quantized",
    kinds=(QUANTIZED,),
    bases=("kron",),
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
