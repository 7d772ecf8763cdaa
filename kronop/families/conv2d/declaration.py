"""The declaration of the family of convolutions."""

from __future__ import annotations

from kronop.core.family import Family, Kind
from kronop.emit.emitter import Emitter
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.gemm.declaration import MATH
from kronop.late import Later

_HERE = __package__

CONV2D = Kind(
    name="convolutions",
    description=Later(f"{_HERE}.description", "Conv2dDescription"),
    operation=Later(f"{_HERE}.operation", "Conv2dOperation"),
    arguments=Later(f"{_HERE}.arguments", "Conv2dArguments"),
    emitters={name: Emitter(f"{_HERE}.{name}.choice", math) for name, math in MATH.items()},
    inputs=("A", "B"),
    names={"Y": "C"},
    argument_names={"Z": "C", "Y": "D"},
    size=Conv2dSize,
    visits=True,
    layout=Later(f"{_HERE}.vocabulary", "TensorNHWC"),
    sample={
        "conv_kind": Later(f"{_HERE}.vocabulary", "Operator.fprop"),
        "iterator_algorithm": None,
        "stride_support": None,
    },
    ahead=("conv_kind", "iterator_algorithm"),
)
FAMILY = Family(
    name="conv2d",
    kinds=(CONV2D,),
    bases=("gemm",),
    exports={
        "Conv2dArguments": f"{_HERE}.arguments",
        "Conv2dDescription": f"{_HERE}.description",
        "Conv2dOperation": f"{_HERE}.operation",
        **dict.fromkeys(
            (
                "StridedDgradIdentitySwizzle1",
                "StridedDgradIdentitySwizzle4",
                "Tensor4DCoord",
                "TensorC32RSK32",
                "TensorLayout",
                "TensorNC32HW32",
                "TensorNHWC",
            ),
            f"{_HERE}.vocabulary",
        ),
        "conv": f"{_HERE}.public_api",
    },
    torch={"conv2d": f"{_HERE}.torch.functional"},
    layers={"Conv2d": "kronop.torch.nn.conv2d"},
    jax={"conv2d": f"{_HERE}.jax"},
    command=Later(f"{_HERE}.command", "COMMAND"),
    bench="kronop.commands.bench_conv2d",
)
