"""What PyCUTLASS's conv2d programs describe: the 12 convolutions of its `run_all_example.sh`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

import kronop
from kronop.families.conv2d.description import convolved
from kronop.families.conv2d.size import shapes_of
from tests import support


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a program is started with; `images` are N, H, W, C and `filters` K, R, S, C."""

    kind: str
    images: tuple[int, int, int, int]
    filters: tuple[int, int, int, int]
    element: str = "float32"
    shape: tuple[int, int, int] = (16, 8, 8)
    opcode: str = "TensorOp"
    tile: tuple[int, int, int] = (128, 128, 16)
    stages: int = 3
    warps: tuple[int, int, int] = (2, 2, 1)
    alignments: tuple[int, int, int] = (4, 4, 4)
    iterator: str = "optimized"
    stride_support: str = "Strided"
    swizzle: str = "IdentitySwizzle1"
    padding: int = 0
    stride: tuple[int, int] = (1, 1)
    mode: str = "Serial"
    slices: int = 1
    scalars: tuple[float, ...] = (1.0, 0.0)
    bias: bool = False
    activation: str = ""

    def but(self, **changed: Any) -> Program:
        return dataclasses.replace(self, **changed)

    @property
    def parallel(self) -> bool:
        return self.mode == "Parallel"

    def epilogue(self, activation: str) -> Any:
        element, f32 = getattr(kronop, self.element), kronop.float32
        types = (element, self.alignments[2], f32, f32)
        if not activation:
            return kronop.LinearCombination(*types)
        return kronop.LinearCombinationGeneric(getattr(kronop, activation)(f32), *types)

    def description(self, target: Any) -> dict[str, Any]:
        """The arguments of its operation; CPUs have none of its tiles."""
        element = getattr(kronop, self.element)
        math = kronop.MathInstruction(
            self.shape,
            element,
            element,
            kronop.float32,
            getattr(kronop.OpClass, self.opcode),
            kronop.MathOperation.multiply_add,
        )
        tile = kronop.TileDescription(self.tile, self.stages, self.warps, math)
        A, B, C = (
            kronop.TensorDescription(element, kronop.TensorNHWC, item) for item in self.alignments
        )
        return {
            "conv_kind": kronop.conv.Operator[self.kind],
            "iterator_algorithm": kronop.conv.IteratorAlgorithm[self.iterator],
            "arch": target,
            "tile_description": None if target == "x86" else tile,
            "A": A,
            "B": B,
            "C": C,
            "stride_support": kronop.conv.StrideSupport[self.stride_support],
            # That of parallel slices ends their reduction.
            "epilogue_functor": self.epilogue("" if self.parallel else self.activation),
            "swizzling_functor": getattr(kronop, self.swizzle),
        }

    def problem(self) -> Any:
        four, two, pad = kronop.Tensor4DCoord, kronop.MatrixCoord, self.padding
        return kronop.conv.Conv2dProblemSize(
            four(*self.images),
            four(*self.filters),
            four(pad, pad, pad, pad),
            two(*self.stride),
            two(1, 1),
            kronop.conv.Mode.cross_correlation,
            self.slices,
            1,
        )

    def run(self, target: Any) -> None:
        """Runs what the program does, in its order, and compares the result."""
        operation = kronop.Conv2dOperation(**self.description(target))
        kind, operations, reduction = operation.description.conv_kind, [operation], None
        C = operation.description.Y
        if self.parallel:
            reduction = kronop.ReductionOperation(
                shape=kronop.MatrixCoord(4, 32 * C.alignment),
                C=C,
                element_accumulator=kronop.float32,
                element_compute=kronop.float32,
                epilogue_functor=self.epilogue(self.activation),
                count=C.alignment,
            )
            operations.append(reduction)
        kronop.compiler.add_module(operations)
        problem = self.problem()
        a, b, c = (
            self._drawn(size(kind, problem))
            for size in (
                kronop.conv.implicit_gemm_tensor_a_size,
                kronop.conv.implicit_gemm_tensor_b_size,
                kronop.conv.implicit_gemm_tensor_c_size,
            )
        )
        d = support.poison(c.shape, C.element)
        if self.bias:
            c = self._drawn(kronop.conv.implicit_gemm_tensor_c_extent(kind, problem).at(3))
        arguments = kronop.Conv2dArguments(
            operation=operation,
            problem_size=problem,
            A=a,
            B=b,
            C=c,
            D=d,
            output_op=operation.epilogue_type(*self.scalars),
            split_k_mode=kronop.conv.SplitKMode[self.mode],
            split_k_slices=problem.split_k_slices,
        )
        assert arguments.bias is (c.size < d.size)
        operation_that_ends = operation
        if reduction is None:
            operation.run(arguments)
            arguments.sync()
        else:
            size = kronop.conv.implicit_gemm_problem_size(kind, arguments.problem_size)
            reduced = kronop.ReductionArguments(
                operation=reduction,
                problem_size=[size.m(), size.n()],
                partitions=problem.split_k_slices,
                workspace=arguments.ptr_D,
                destination=d,
                source=c,
                output_op=reduction.epilogue_type(*self.scalars),
                bias=arguments.bias,
            )
            operation.run(arguments)
            reduction.run(reduced)
            reduced.sync()
            operation_that_ends = reduction.product(operation)
        self._check(operation_that_ends, arguments.problem_size, (a, b, c), d)

    def _drawn(self, count: int) -> Any:
        element = getattr(kronop, self.element)
        values = np.random.default_rng(count).integers(-2, 3, count)
        return values.astype(support.numpy_type(element))

    def _check(self, operation: Any, problem: Any, given: tuple[Any, Any, Any], d: Any) -> None:
        what, size = operation.description, problem.size
        assert self.images == (problem.N, problem.H, problem.W, problem.C)
        kind = what.conv_kind
        shapes = [shapes_of(size)[name] for name in kind.tensors]
        a, b = (item.reshape(shape) for item, shape in zip(given, shapes[:2], strict=False))
        c = given[2] if self.bias else given[2].reshape(shapes[2])
        output_op = what.epilogue.epilogue_type(*self.scalars)
        value = what.reference(a, b, c, output_op, None, size)
        wide = [np.abs(item.astype(np.float64)) for item in (a, b)]
        steps = kind.extents(size)[2] + 1
        bound = support.error_bound(
            what, value, convolved(kind, *wide, size), steps, c, None, output_op
        )
        support.Expected(value, bound).check(d.reshape(shapes[2]))


_TF32 = Program(kind="fprop", images=(1, 13, 17, 8), filters=(24, 3, 3, 8), stride=(2, 2))
_SMALL = _TF32.but(
    images=(1, 4, 4, 12),
    filters=(8, 3, 3, 12),
    stride=(3, 3),
    alignments=(2, 2, 2),
    swizzle="IdentitySwizzle2",
    slices=2,
    scalars=(1.0, 1.0),
)
_SIMT = Program(
    kind="fprop",
    images=(1, 71, 80, 32),
    filters=(64, 5, 5, 32),
    shape=(1, 1, 1),
    opcode="Simt",
    tile=(128, 128, 8),
    stages=4,
    warps=(4, 2, 1),
    alignments=(4, 4, 1),
    iterator="analytic",
    swizzle="IdentitySwizzle4",
    padding=2,
    stride=(2, 2),
    mode="Parallel",
    slices=3,
    scalars=(1.0, 1.0),
)
_WIDE: dict[str, Any] = {
    "images": (1, 27, 27, 256),
    "filters": (512, 3, 3, 256),
    "padding": 1,
    "stride": (2, 1),
    "scalars": (1.0, 0.0),
}
_HALF = Program(
    kind="fprop",
    element="float16",
    shape=(16, 8, 16),
    tile=(128, 128, 64),
    alignments=(8, 8, 8),
    **_WIDE,
)
_FEW = _HALF.but(
    images=(1, 16, 16, 2),
    filters=(16, 3, 3, 2),
    stride=(2, 2),
    iterator="few_channels",
    alignments=(2, 2, 8),
)
PROGRAMS: tuple[Program, ...] = (
    _TF32,
    _SMALL,
    _SIMT,
    Program(
        kind="wgrad",
        images=(1, 8, 8, 1),
        filters=(1, 3, 3, 1),
        tile=(128, 128, 32),
        alignments=(1, 1, 4),
        padding=1,
    ),
    _SIMT.but(
        kind="wgrad",
        warps=(2, 4, 1),
        iterator="optimized",
        swizzle="IdentitySwizzle1",
        mode="Serial",
        slices=2,
        **_WIDE,
    ),
    Program(kind="dgrad", swizzle="StridedDgradIdentitySwizzle1", slices=2, **_WIDE),
    _HALF,
    _FEW,
    _HALF.but(
        images=(1, 8, 8, 8),
        filters=(16, 3, 3, 8),
        stride=(2, 2),
        iterator="fixed_channels",
        swizzle="IdentitySwizzle2",
    ),
    _HALF.but(
        kind="dgrad",
        images=(1, 56, 56, 12),
        filters=(8, 1, 1, 12),
        padding=0,
        stride=(2, 2),
        tile=(128, 128, 32),
        alignments=(4, 4, 4),
        swizzle="StridedDgradIdentitySwizzle1",
    ),
    _SMALL.but(scalars=(0.0, 0.5), bias=True, activation="silu"),
    _FEW.but(scalars=(0.0, 0.5), bias=True, activation="hardswish"),
)
