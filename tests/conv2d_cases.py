"""What PyCUTLASS's tests and programs of convolutions describe, and the sizes that they run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import kronop
from kronop.families.conv2d.description import Conv2dDescription
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import (
    DgradSwizzle,
    IteratorAlgorithm,
    Operator,
    StrideSupport,
    TensorC32RSK32,
    TensorLayout,
    TensorNC32HW32,
    TensorNHWC,
)
from kronop.families.gemm.vocabulary import Swizzle


def sized(
    images: tuple[int, ...],
    filters: tuple[int, ...],
    pad: tuple[int, int] = (0, 0),
    stride: tuple[int, int] = (1, 1),
    **more: int,
) -> Conv2dSize:
    """The size of images (N, H, W, C) and filters (K, R, S)."""
    how = {"pad_h": pad[0], "pad_w": pad[1], "stride_h": stride[0], "stride_w": stride[1]}
    return Conv2dSize(*images, *filters, **how, **more)


# What every test runs, unless its kernel takes other channels or strides.
_ONE, _TWO, _THREE = (1, 1), (2, 2), (3, 3)
COMMON = (
    sized((1, 1, 1, 64), (8, 1, 1), _ONE),
    sized((1, 1, 8, 64), (8, 1, 3), _ONE),
    sized((1, 7, 8, 64), (8, 3, 3), _ONE),
    sized((1, 7, 9, 64), (8, 4, 4), _ONE),
    sized((2, 7, 9, 64), (8, 5, 5), _ONE),
    sized((3, 7, 9, 64), (8, 6, 5), _ONE),
    sized((3, 7, 9, 64), (8, 6, 6), _ONE),
    sized((3, 7, 9, 64), (8, 7, 7), _ONE),
    sized((1, 11, 7, 64), (8, 1, 1), stride=_TWO),
    sized((1, 11, 7, 64), (8, 3, 3), _ONE, _TWO),
    sized((1, 13, 11, 64), (8, 1, 1), _ONE, _TWO),
    sized((1, 17, 19, 64), (16, 2, 2), _ONE, _TWO),
    sized((1, 23, 5, 64), (16, 3, 3), _ONE, _TWO),
    sized((1, 23, 21, 128), (224, 3, 3), _ONE),
    sized((1, 16, 24, 128), (96, 3, 3), _ONE),
    sized((1, 55, 51, 256), (512, 1, 1), stride=_TWO),
    sized((1, 27, 23, 256), (512, 3, 3), stride=_THREE),
    sized((1, 27, 31, 256), (512, 3, 3), (5, 7), (3, 4)),
    sized((1, 27, 35, 256), (512, 7, 5), (11, 7), (3, 5)),
    sized((1, 27, 27, 256), (512, 3, 3), _ONE, (1, 2)),
    sized((1, 27, 27, 256), (512, 3, 3), _ONE, (2, 1)),
    sized((3, 28, 28, 256), (256, 2, 2), stride=_TWO),
    sized((4, 4, 5, 128), (256, 3, 6), p=3, q=3),
    sized((4, 2, 3, 256), (328, 3, 5), _ONE, p=1, q=1),
)
# What they run in slices, serial and parallel, with alpha and beta of 2; strided dgrad in one.
SLICED = sized((1, 17, 11, 288), (160, 3, 3), _ONE)
SLICES = (1, 2, 3, 4, 201)
STRIDED_DGRAD = sized((1, 56, 56, 8), (8, 1, 1), stride=_TWO)


def few_channels(channels: int) -> tuple[Conv2dSize, ...]:
    """First layers."""
    large = (1, 224, 224, channels)
    return (
        sized((1, 8, 8, channels), (16, 3, 3), _ONE, _TWO),
        sized((1, 16, 16, channels), (16, 3, 3), _ONE, _TWO),
        sized((1, 16, 16, channels), (16, 7, 7), _ONE),
        sized(large, (32, 7, 7), _ONE),
        *(
            sized(large, (64, taps, taps), _ONE, stride)
            for taps, stride in ((7, _TWO), (5, _ONE), (5, _TWO))
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel, and the sizes that are its own; one of CUTLASS 3.x has a cluster, no iterator."""

    kind: str
    iterator: str
    strides: str = "Strided"
    element: str = "float16"
    sums: str = "float32"
    output: str = "float32"
    shape: tuple[int, int, int] = (16, 8, 16)
    opcode: str = "TensorOp"
    tile: tuple[int, int, int] = (128, 128, 64)
    stages: int = 3
    warps: tuple[int, int, int] = (2, 2, 1)
    cluster: tuple[int, int, int] | None = None
    alignments: tuple[int, int, int] = (8, 8, 4)
    swizzle: str = "IdentitySwizzle1"
    activation: str = ""
    functor: str = "LinearCombination"
    operation: str = "multiply_add"
    layouts: tuple[TensorLayout, ...] = (TensorNHWC,) * 3
    sizes: tuple[Conv2dSize, ...] = ()

    def but(self, **changed: Any) -> Case:
        return dataclasses.replace(self, **changed)

    def words(self) -> dict[str, Any]:
        """The arguments of a description, by their names."""
        element, sums, output = (
            getattr(kronop, name) for name in (self.element, self.sums, self.output)
        )
        math = kronop.MathInstruction(
            self.shape,
            element,
            element,
            sums,
            kronop.OpClass[self.opcode],
            kronop.MathOperation[self.operation],
        )
        elements = (element, element, output)
        a, b, c = map(kronop.TensorDescription, elements, self.layouts, self.alignments)
        plain = (output, self.alignments[2], sums, sums)
        if self.functor == "FastLinearCombinationClamp":
            plain = plain[:2]
        epilogue: Any = getattr(kronop, self.functor)(*plain)
        if self.activation:
            activation = getattr(kronop, self.activation)(sums)
            epilogue = kronop.LinearCombinationGeneric(activation, *plain)
        words = DgradSwizzle if self.swizzle.startswith("Strided") else Swizzle
        return {
            "conv_kind": Operator[self.kind],
            "iterator_algorithm": IteratorAlgorithm[self.iterator] if self.iterator else None,
            "math": math,
            "tile": kronop.TileDescription(self.tile, self.stages, self.warps, math, self.cluster),
            "A": a,
            "B": b,
            "C": c,
            "stride_support": StrideSupport[self.strides],
            "epilogue": epilogue,
            "swizzling_functor": words[self.swizzle],
        }

    def description(self) -> Conv2dDescription:
        words = self.words()
        return Conv2dDescription(Y=words.pop("C"), **words)

    def made(self, target: Any) -> Any:
        """The operation, as a program makes it; CPUs have none of its tiles."""
        words = self.words()
        tile = None if target == "x86" else words["tile"]
        return kronop.Conv2dOperation(
            words["conv_kind"],
            words["iterator_algorithm"],
            target,
            tile,
            *(words[name] for name in ("A", "B", "C", "stride_support", "epilogue")),
            swizzling_functor=words["swizzling_functor"],
        )

    def runs(self) -> Iterator[tuple[Conv2dSize, float, float]]:
        """The sizes with alpha and beta, as the test runs them."""
        for size in (*COMMON, *self.sizes):
            if self._takes(size):
                yield size, 1.0, 0.0
        if self.iterator in ("fixed_channels", "few_channels") or self.element == "int8":
            return
        if self.kind == "dgrad" and self.strides == "Strided":
            yield STRIDED_DGRAD, 1.0, 0.0
            return
        for slices in SLICES:
            yield dataclasses.replace(SLICED, slices=slices), 2.0, 2.0

    def _takes(self, size: Conv2dSize) -> bool:
        is_unity = (size.stride_h, size.stride_w) == (1, 1)
        if self.kind == "dgrad" and is_unity != (self.strides == "Unity"):
            return False
        if self.iterator == "fixed_channels":
            return size.c == self.alignments[0]
        if self.element == "int8":
            return size.c % 32 == size.k % 32 == 0
        return size.c % self.alignments[0] == 0


_FPROP = Case(kind="fprop", iterator="optimized")
_DGRAD = Case(kind="dgrad", iterator="optimized", strides="Unity")
_STRIDED = _DGRAD.but(
    strides="Strided", tile=(128, 128, 32), swizzle="StridedDgradIdentitySwizzle1"
)
_WGRAD = Case(kind="wgrad", iterator="optimized")
_ANALYTIC = {"iterator": "analytic"}
# Sums of float16; single precision on ordinary cores, and in TF32.
_HALF = {"sums": "float16", "output": "float16", "alignments": (8, 8, 8)}
_SIMT = {
    "element": "float32",
    "shape": (1, 1, 1),
    "opcode": "Simt",
    "tile": (128, 128, 8),
    "stages": 4,
    "warps": (2, 4, 1),
    "alignments": (4, 4, 1),
}
_TF32 = {
    "element": "float32",
    "shape": (16, 8, 8),
    "tile": (128, 128, 16),
    "alignments": (4, 4, 8),
}
_BY_8 = {"shape": (16, 8, 8), "tile": (128, 128, 16)}
_TINY = sized((1, 4, 4, 12), (8, 3, 3), stride=_THREE)
_PAIRS = (
    _TINY,
    sized((1, 4, 4, 14), (8, 3, 3), stride=_THREE),
    sized((1, 23, 56, 98), (128, 3, 3), (4, 5), _THREE),
)
_FOURS = (
    _TINY,
    sized((1, 4, 4, 28), (8, 3, 3), stride=_THREE),
    sized((1, 23, 56, 100), (128, 3, 3), (4, 5), _THREE),
)
_FOUR = {"alignments": (4, 4, 4), "sizes": (_TINY,)}
# Its row of 9 results of wgrad is no whole vectors of 4, which C's alignment promises: CUTLASS
# writes beyond it, so that kronop's adapter refuses it.
ONE_CHANNEL = sized((1, 8, 8, 1), (1, 3, 3), _ONE)

CASES: dict[str, Case] = {
    "dgrad f16 analytic": _DGRAD.but(**_HALF, **_ANALYTIC),
    "dgrad f16": _DGRAD.but(**_HALF),
    "dgrad f16 analytic, 4": _DGRAD.but(**{**_HALF, **_FOUR}, **_ANALYTIC),
    "dgrad f16, 4": _DGRAD.but(**{**_HALF, **_FOUR}),
    "dgrad, 3 stages of 32": _DGRAD.but(tile=(128, 128, 32)),
    "dgrad, 4 stages of 32": _DGRAD.but(tile=(128, 128, 32), stages=4),
    "dgrad, 3 stages of 64": _DGRAD,
    "dgrad, 4 stages of 64": _DGRAD.but(stages=4),
    "dgrad simt analytic": _DGRAD.but(**{**_SIMT, "warps": (4, 2, 1)}, **_ANALYTIC),
    "dgrad simt": _DGRAD.but(**_SIMT),
    "dgrad tf32 analytic": _DGRAD.but(**_TF32, **_ANALYTIC),
    "dgrad tf32": _DGRAD.but(**_TF32),
    "few channels, 2": _FPROP.but(
        iterator="few_channels",
        output="float16",
        alignments=(2, 2, 8),
        sizes=few_channels(2),
    ),
    "few channels, 1": _FPROP.but(
        iterator="few_channels",
        output="float16",
        shape=(16, 8, 8),
        tile=(128, 128, 32),
        stages=2,
        alignments=(1, 1, 8),
        sizes=few_channels(1),
    ),
    **{
        f"fixed channels, {channels}": _FPROP.but(
            iterator="fixed_channels",
            output="float16",
            alignments=(channels, channels, 8),
            sizes=few_channels(channels),
        )
        for channels in (8, 4, 2)
    },
    "fprop f16 analytic": _FPROP.but(**_HALF, **_ANALYTIC),
    "fprop f16": _FPROP.but(**_HALF),
    "fprop f16 analytic, 2": _FPROP.but(
        **{**_HALF, "alignments": (2, 2, 8)}, **_ANALYTIC, sizes=_PAIRS
    ),
    "fprop f16, 2": _FPROP.but(**{**_HALF, "alignments": (2, 2, 8)}, sizes=_PAIRS),
    "fprop f16, 4": _FPROP.but(**{**_HALF, "alignments": (4, 4, 8)}, sizes=_FOURS),
    "fprop analytic": _FPROP.but(**_ANALYTIC),
    "fprop simt analytic": _FPROP.but(
        **{**_SIMT, "warps": (4, 2, 1)}, **_ANALYTIC, swizzle="IdentitySwizzle2"
    ),
    "fprop simt": _FPROP.but(**_SIMT),
    "fprop tf32 analytic": _FPROP.but(**_TF32, **_ANALYTIC),
    "fprop tf32, 2": _FPROP.but(**{**_TF32, "alignments": (2, 2, 8)}, sizes=(_TINY,)),
    "strided dgrad analytic": _STRIDED.but(**_ANALYTIC),
    "strided dgrad analytic, wide": _STRIDED.but(**_ANALYTIC, tile=(128, 256, 64), warps=(2, 4, 1)),
    "strided dgrad analytic, 4": _STRIDED.but(**_ANALYTIC, **_FOUR),
    "strided dgrad": _STRIDED,
    "strided dgrad, 4": _STRIDED.but(
        alignments=(4, 4, 4),
        sizes=(
            sized((1, 56, 56, 12), (8, 1, 1), stride=_TWO),
            sized((1, 55, 55, 12), (8, 1, 1), stride=_TWO),
        ),
    ),
    "wgrad f16 analytic": _WGRAD.but(**_HALF, **_ANALYTIC),
    "wgrad f16": _WGRAD.but(**_HALF),
    "wgrad by 8 analytic": _WGRAD.but(**_BY_8, **_ANALYTIC),
    "wgrad by 8": _WGRAD.but(**_BY_8),
    "wgrad wide": _WGRAD.but(tile=(64, 256, 32), warps=(1, 4, 1)),
    "wgrad by 8 analytic, 4": _WGRAD.but(**_BY_8, **_ANALYTIC, **_FOUR),
    "wgrad by 8, 4": _WGRAD.but(**_BY_8, **_FOUR),
    "wgrad simt analytic": _WGRAD.but(**_SIMT, **_ANALYTIC),
    "wgrad simt": _WGRAD.but(**_SIMT),
    "wgrad tf32": _WGRAD.but(**_TF32),
    "wgrad tf32, 1": _WGRAD.but(
        **{**_TF32, "tile": (128, 128, 32), "alignments": (1, 1, 4)}, sizes=(ONE_CHANNEL,)
    ),
}

# Of its tables, what no test has.
_DOUBLE: dict[str, Any] = {
    **dict.fromkeys(("element", "sums", "output"), "float64"),
    "alignments": (1, 1, 1),
}
DOUBLES: dict[str, Case] = {
    f"{case.kind} {name}": case.but(**{**words, **_DOUBLE})
    for case in (_FPROP, _DGRAD, _WGRAD)
    for name, words in {
        "f64": {"shape": (8, 8, 4), "tile": (64, 64, 16), "stages": 4},
        "f64 simt": {**_SIMT, "tile": (64, 128, 8)},
    }.items()
}
_BYTES = Case(
    kind="fprop",
    iterator="optimized",
    element="int8",
    sums="int32",
    output="int8",
    shape=(16, 8, 32),
    alignments=(16, 16, 16),
    functor="FastLinearCombinationClamp",
    operation="multiply_add_saturate",
    sizes=(sized((2, 9, 8, 64), (64, 3, 3), _ONE), sized((1, 9, 8, 32), (96, 1, 2), _ONE, _TWO)),
)
_PANELS = {"layouts": (TensorNC32HW32, TensorC32RSK32, TensorNC32HW32), "alignments": (16, 16, 8)}
BYTES: dict[str, Case] = {
    "s8": _BYTES,
    "s8 analytic": _BYTES.but(**_ANALYTIC),
    "s8 panels": _BYTES.but(**_PANELS),
    "s8 panels analytic": _BYTES.but(**_PANELS, **_ANALYTIC),
}


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a program is started with: its kernel, its size, alpha and beta, and whether C is a
    vector; whose slices are parallel if a `ReductionOperation` adds them up."""

    case: Case
    size: Conv2dSize
    scalars: tuple[float, float] = (1.0, 0.0)
    parallel: bool = False
    bias: bool = False


_MIDDLE = sized((1, 27, 27, 256), (512, 3, 3), _ONE, (2, 1))
_TINY_TWICE = dataclasses.replace(_TINY, slices=2)
_TF32_2 = _FPROP.but(**{**_TF32, "alignments": (2, 2, 2)}, swizzle="IdentitySwizzle2")
_FEW_2 = CASES["few channels, 2"].but(sizes=())
_FEW = sized((1, 16, 16, 2), (16, 3, 3), _ONE, _TWO)
# A plain one, then those of the customisable program, in the order of its instructions.
PROGRAMS: dict[str, Program] = {
    "basic": Program(
        case=_FPROP.but(tile=(128, 128, 32), stages=2, alignments=(1, 1, 1)),
        # Its images are (N, H, C, W): channels and width are in each other's place.
        size=sized((1, 32, 64, 32), (32, 3, 3)),
    ),
    "fprop tf32": Program(
        case=_FPROP.but(**{**_TF32, "alignments": (4, 4, 4)}),
        size=sized((1, 13, 17, 8), (24, 3, 3), stride=_TWO),
    ),
    "fprop tf32, 2": Program(case=_TF32_2, size=_TINY_TWICE, scalars=(1.0, 1.0)),
    "fprop simt": Program(
        case=_FPROP.but(**{**_SIMT, "warps": (4, 2, 1)}, **_ANALYTIC, swizzle="IdentitySwizzle4"),
        size=sized((1, 71, 80, 32), (64, 5, 5), _TWO, _TWO, slices=3),
        scalars=(1.0, 1.0),
        parallel=True,
    ),
    "wgrad tf32": Program(case=CASES["wgrad tf32, 1"], size=ONE_CHANNEL),
    "wgrad simt": Program(case=_WGRAD.but(**_SIMT), size=dataclasses.replace(_MIDDLE, slices=2)),
    "dgrad tf32": Program(
        case=_STRIDED.but(**{**_TF32, "alignments": (4, 4, 4)}),
        size=dataclasses.replace(_MIDDLE, slices=2),
    ),
    "fprop f16": Program(case=_FPROP.but(output="float16", alignments=(8, 8, 8)), size=_MIDDLE),
    "few channels": Program(case=_FEW_2, size=_FEW),
    "fixed channels": Program(
        case=CASES["fixed channels, 8"].but(sizes=(), swizzle="IdentitySwizzle2"),
        size=sized((1, 8, 8, 8), (16, 3, 3), _ONE, _TWO),
    ),
    "strided dgrad": Program(
        case=_STRIDED.but(alignments=(4, 4, 4)),
        size=sized((1, 56, 56, 12), (8, 1, 1), stride=_TWO),
    ),
    "silu": Program(
        case=_TF32_2.but(activation="silu"), size=_TINY_TWICE, scalars=(0.0, 0.5), bias=True
    ),
    "hardswish": Program(
        case=_FEW_2.but(activation="hardswish"), size=_FEW, scalars=(0.0, 0.5), bias=True
    ),
}
