"""PyCUTLASS's second kernel of a product whose sum is cut into parallel slices.

Its programs run a product, or a convolution, that leaves its slices' sums in a workspace, and then
a reduction that adds these up and has the epilogue. An operation of kronop does both. So the
arguments of a reduction take the product over: it runs when they run, with the reduction's
epilogue.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from kronop.artifacts import Binary, Source
from kronop.core.calls import operation_of
from kronop.descriptions.datatype import DataType
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, DescriptionError, ElementTypeError
from kronop.families.gemm.slice_arguments import Slices
from kronop.families.gemm.vocabulary import MatrixCoord
from kronop.target import BASELINE


class ReductionOperation:
    """The end of a product whose sum is cut into slices: `D = epilogue(sum of the slices, C)`.

    It is there for programs that were written for PyCUTLASS, and runs on `ReductionArguments`. Else
    one `GemmOperationUniversal`, or `Conv2dOperation`, with this epilogue does the same.

    Args:
        shape, element_workspace, count, partitions_per_stage: the tile, the type of the slices'
            sums, and the accesses and steps of PyCUTLASS's kernel; not read.
        C: the description of C and D.
        element_accumulator: type of the sums.
        element_compute: type in which the epilogue computes; None for the epilogue's.
        epilogue_functor: one of the four.

    Raises:
        ElementTypeError: what is no epilogue.
        DescriptionError: the epilogue has other types.

    Example:
        >>> f32 = kronop.float32
        >>> relu = kronop.LinearCombinationGeneric(kronop.relu(f32), f32, 1, f32, f32)
        >>> reduction = kronop.ReductionOperation(
        ...     shape=kronop.MatrixCoord(4, 32),
        ...     C=kronop.TensorDescription(f32),
        ...     element_accumulator=f32,
        ...     epilogue_functor=relu,
        ... )
        >>> reduction.epilogue_type(1.0, 0.5)  # as of an operation
        EpilogueArguments(scalars=(1.0, 0.5))
    """

    # `kronop.compiler.add_module` has nothing to compile: the kernels are those of products.
    target = BASELINE
    sources: tuple[Source, ...] = ()

    def __init__(
        self,
        shape: MatrixCoord,
        C: TensorDescription,
        element_accumulator: DataType,
        element_workspace: DataType | None = None,
        element_compute: DataType | None = None,
        epilogue_functor: Epilogue | None = None,
        count: int = 1,
        partitions_per_stage: int = 4,
    ) -> None:
        if not isinstance(epilogue_functor, Epilogue) or not isinstance(C, TensorDescription):
            raise ElementTypeError(
                "C and epilogue_functor",
                expected="a kronop.TensorDescription and an epilogue",
                got=f"{C!r} and {epilogue_functor!r}",
                hint="for example kronop.LinearCombination(...)",
            )
        compute = element_compute or epilogue_functor.element_epilogue
        wanted = (C.element, element_accumulator, compute)
        found = (
            epilogue_functor.element_output,
            epilogue_functor.element_accumulator,
            epilogue_functor.element_epilogue,
        )
        if wanted != found:
            raise DescriptionError(
                "types of epilogue_functor",
                expected=", ".join(map(repr, wanted)),
                got=", ".join(map(repr, found)),
                hint="use those of C, element_accumulator and element_compute",
            )
        self.C, self.epilogue_functor = C, epilogue_functor

    def install(self, binaries: tuple[Binary, ...]) -> None:
        """Stores no binaries, since there are no sources."""

    def epilogue_type(self, *scalars: float) -> EpilogueArguments:
        """The run-time scalars: alpha, beta, then those of the activation."""
        return self.epilogue_functor.epilogue_type(*scalars)

    def product(self, operation: Any) -> Any:
        """The operation of a product, or of a convolution, that ends with this epilogue."""
        what, own = operation.description, {"Y": self.C, "epilogue": self.epilogue_functor}
        fields = {item.name: getattr(what, item.name) for item in dataclasses.fields(what)} | own
        tile, _ = fields.pop("tile"), fields.pop("math")
        kind: Any = type(operation)
        return operation_of(kind, operation.target, *fields.values(), tile=tile)

    def run(self, arguments: ReductionArguments, stream: object = None) -> None:
        """Launches the product and adds its slices up; returns at once on a GPU.

        Raises:
            ElementTypeError: the arguments were not made for this operation.
        """
        if not isinstance(arguments, ReductionArguments) or arguments.reduction is not self:
            raise ElementTypeError(
                "run",
                expected="kronop.ReductionArguments that were made for this operation",
                got=repr(arguments),
                hint="build them with operation=this operation",
            )
        product = arguments.product
        product.operation.run(product, stream)


class ReductionArguments:
    """The arguments of a `ReductionOperation`, which take over those of a product, or of a
    convolution.

    Args:
        operation: the ReductionOperation.
        problem_size: [M, N]; of a convolution those of `kronop.conv.implicit_gemm_problem_size`.
        partitions: the product's `split_k_slices`.
        workspace: `ptr_D` of the product's arguments, in the mode GemmSplitKParallel (of a
            convolution's: SplitKMode.Parallel). From now on a run of these does nothing: the
            product runs when the reduction does.
        destination: where the result goes, D; it may be C itself.
        source: C, of which the product reads nothing.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; that of the product is not read.
        bias: PyCUTLASS's word for whether C is a vector, which kronop sees for itself.

    Attributes:
        reduction: the ReductionOperation.
        product: the arguments that run: those of the product, with the reduction's epilogue.

    Raises:
        ElementTypeError: an argument has the wrong class, or a tensor another element type.
        ArgumentError: sizes, slices or tensors that do not fit.

    Example:
        >>> f32 = kronop.float32
        >>> matrix, sums = kronop.TensorDescription(f32), kronop.LinearCombination(f32, 1, f32, f32)
        >>> relu = kronop.LinearCombinationGeneric(kronop.relu(f32), f32, 1, f32, f32)
        >>> operation = kronop.GemmOperationUniversal("x86", None, matrix, matrix, matrix, sums)
        >>> reduction = kronop.ReductionOperation(
        ...     kronop.MatrixCoord(4, 32), matrix, f32, epilogue_functor=relu
        ... )
        >>> a, b = np.ones((2, 64), np.float32), -np.ones((64, 3), np.float32)
        >>> c, d = np.full((2, 3), 70, np.float32), np.empty((2, 3), np.float32)
        >>> mode = kronop.gemm.Mode.GemmSplitKParallel
        >>> arguments = kronop.GemmArguments(
        ...     operation, A=a, B=b, D=d, gemm_mode=mode, split_k_slices=2
        ... )
        >>> reduced = kronop.ReductionArguments(
        ...     reduction, [2, 3], 2, arguments.ptr_D, d, c, reduction.epilogue_type(1.0, 1.0)
        ... )
        >>> operation.run(arguments)
        >>> reduction.run(reduced)
        >>> reduced.sync()
        >>> d.tolist()
        [[6.0, 6.0, 6.0], [6.0, 6.0, 6.0]]
    """

    def __init__(
        self,
        operation: ReductionOperation,
        problem_size: Sequence[int],
        partitions: int,
        workspace: Slices,
        destination: Any,
        source: Any,
        output_op: EpilogueArguments | None = None,
        bias: bool = False,
    ) -> None:
        parallel = workspace._parallel() if isinstance(workspace, Slices) else None
        if not isinstance(operation, ReductionOperation) or parallel is None:
            raise ElementTypeError(
                "operation and workspace",
                expected="a ReductionOperation, and ptr_D of arguments in the mode"
                " GemmSplitKParallel, or SplitKMode.Parallel",
                got=f"{operation!r} and {workspace!r}",
                hint="build kronop.GemmArguments with this gemm_mode, or kronop.Conv2dArguments"
                " with this split_k_mode",
            )
        made: Any = operation.product(workspace.operation)
        self.reduction = operation
        self.product: Any = workspace._ended(made, source, destination, output_op)
        rows, columns, slices = parallel
        given = (*problem_size, partitions, bias and not self.bias)
        if given != (rows, columns, slices, False):
            raise ArgumentError(
                "problem_size, partitions and bias",
                expected=f"[{rows}, {columns}], {slices} and {self.bias}, as of the product",
                got=f"{problem_size!r}, {partitions!r} and {bias!r}",
                hint="pass the product's M and N, its split_k_slices and its `bias`",
            )
        workspace._leave()

    @property
    def D(self) -> Any:
        """The tensor of the result."""
        return self.product.D

    @property
    def bias(self) -> bool:
        """Whether C is one row or one column, which repeats."""
        return bool(self.product.bias)

    def sync(self) -> None:
        """Waits for the last run's stream, then copies results to host tensors."""
        self.product.sync()
