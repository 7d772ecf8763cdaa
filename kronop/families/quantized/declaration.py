"""Kronecker products whose rows are rounded to integers: FlatQuant's, in one kernel."""

from __future__ import annotations

from kronop.core.family import Family, Kind, Later

_HERE = __package__

QUANTIZED = Kind(
    name="quantized Kronecker",
    description=Later(f"{_HERE}.description", "QuantizedKronDescription"),
    emitters={
        "cuda": Later(f"{_HERE}.cuda.emitter", "CudaEmitter"),
        "x86": Later(f"{_HERE}.x86.emitter", "X86Emitter"),
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
