"""A family as small as one can be: Y = epilogue(X * W), element by element.

It is here to prove that a family is a folder: tests put `FAMILY` among kronop's.
"""

from __future__ import annotations

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.late import Later

_HERE = __package__
_EMITTER = Emitter(f"{_HERE}.choice", Later("kronop.emit.default_math", "ordinary"))

SCALED = Kind(
    name="scaled",
    description=Later(f"{_HERE}.description", "ScaledDescription"),
    emitters={"cuda": _EMITTER, "x86": _EMITTER},
    inputs=("X", "W"),
    sample={"columns": 8},
)
FAMILY = Family(
    name="scaled",
    kinds=(SCALED,),
    exports={
        "ScaledArguments": f"{_HERE}.operation",
        "ScaledDescription": f"{_HERE}.description",
        "ScaledOperation": f"{_HERE}.operation",
        "scaled": f"{_HERE}.api",
    },
    torch={"scaled": f"{_HERE}.torch"},
    command=Later(f"{_HERE}.api", "COMMAND"),
)
