"""Arguments of convolutions: tensors of any framework -> Conv2dProblem."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kronop.args import visited
from kronop.args.operands import Operand, results
from kronop.args.placing import Placed
from kronop.args.protocols import OperationLike, Places
from kronop.args.staging import Form, form_for
from kronop.args.strides import flat_stride
from kronop.args.tensor import check_element
from kronop.args.view import TensorView, contiguous_strides
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError
from kronop.families.conv2d.description import Conv2dDescription, Conv2dProblem, shape_in_memory
from kronop.families.conv2d.shape_arguments import (
    AXES,
    ORDERS,
    ROWS,
    along,
    as_rows,
    check_panels,
    four_axes,
    misfit,
    plain_shape,
    shaped,
    size_of,
    spread_source,
    with_axes,
)
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import (
    Conv2dProblemSize,
    Operator,
    SplitKMode,
    StrideSupport,
)
from kronop.families.gemm.slice_arguments import Slices
from kronop.size import round_up

Ints = tuple[int, ...]
_PANELS, _FILTER = "abcde", "bcd"


class Conv2dArguments(Slices):
    """The tensors and scalars of a convolution, `D = epilogue(A * B, C, bias)`.

    Args:
        operation: a Conv2dOperation.
        problem_size: a `kronop.conv.Conv2dProblemSize`; None for what the shapes of A and B say,
            with strides of 1, no padding, no dilation and one group. With it, tensors may be flat,
            as PyCUTLASS's are: they then hold the elements without gaps.
        A, B: of fprop images (N, H, W, C) and filters (K, R, S, C / groups); of dgrad results
            (N, P, Q, K) and filters; of wgrad results and images. Any strides. Interleaved ones are
            (N, C/32, H, W, 32) and (C/32, R, S, K, 32), without gaps.
        C: like D, or what broadcasts to it; needed where beta is not 0, and read only there. It may
            be D itself. One number for each channel repeats: as in PyCUTLASS, a bias times beta.
            Channels of wgrad's result are those of a filter, C / groups.
        D: of fprop results, of dgrad images, of wgrad filters, where the result goes; None for a
            new tensor like A, without gaps.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without C.
            That of a visitor tree has names, and holds C, a bias and D, as far as there are any. A
            tree has D as a matrix: (N P Q, K) of fprop, (N H W, C) of dgrad, (K R S, C / groups) of
            wgrad; what else it reads and writes has these shapes, or D's.
        split_k_mode: PyCUTLASS's word for who adds slices up: here an operation does it, or a
            `ReductionOperation` that takes it over.
        split_k_slices: into how many slices GPUs cut the sum; 1 for what the problem size says.
        bias: one number for each channel of D, of its type, added before an activation; None for
            none. The attribute of this name says whether C is a vector.

    Everything is checked here; nothing is computed, and nothing but D is allocated, before the
    first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, sizes, devices or overlaps that do not fit.
        OutOfMemoryError: no room for D.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32, kronop.TensorNHWC)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> fprop = kronop.conv.Operator.fprop
        >>> operation = kronop.Conv2dOperation(
        ...     fprop, None, "x86", None, tensor, tensor, tensor, None, epilogue
        ... )
        >>> images, filters = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 3, 3, 2), np.float32)
        >>> arguments = kronop.Conv2dArguments(operation, A=images, B=filters)
        >>> operation.run(arguments)
        >>> arguments.D.shape, float(arguments.D[0, 0, 0, 0])
        ((1, 2, 2, 3), 18.0)
    """

    describes: ClassVar[type] = Conv2dDescription
    made_for = "Conv2dOperation"
    sized = "problem_size"
    operands: ClassVar[tuple[Operand, ...]] = (
        Operand("A", AXES),
        Operand("B", AXES),
        Operand("bias", "n", like="Y", optional=True, typed=True, over=visited.OVER, of_tree=True),
        *results(AXES),
    )
    differentiable = "kronop.torch.conv2d"
    called: ClassVar[Mapping[str, str]] = {"Z": "C", "Y": "D"}
    _description: Conv2dDescription
    tree_rows = ROWS

    def __init__(
        self,
        operation: OperationLike,
        problem_size: Conv2dProblemSize | Conv2dSize | None = None,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        output_op: EpilogueArguments | None = None,
        split_k_mode: SplitKMode = SplitKMode.Serial,
        split_k_slices: int = 1,
        bias: Any = None,
    ) -> None:
        super().__init__(operation, output_op)
        self._slices: Any = whole(split_k_slices)
        self._given = size_of(problem_size, split_k_mode, self._slices)
        self.split_k_mode, self._tensors = split_k_mode, (A, B, bias)
        self._accept(A=A, B=B, bias=bias, Z=C, Y=D)

    @property
    def _kind(self) -> Operator:
        return self._description.conv_kind

    @property
    def _rows(self) -> int:
        """How many axes of D are the rows of its matrix."""
        return 1 if self._kind is Operator.wgrad and not self._description.by_taps else ROWS

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        """The shape of D in memory; flat tensors beside a problem size get their shapes."""
        what, flat = self._description, self._given is not None
        self._size = size = self._size_from(views)
        if what.stride_support is StrideSupport.Unity and (size.stride_h, size.stride_w) != (1, 1):
            raise ArgumentError(
                "strides of the problem",
                expected="1, as stride_support is Unity",
                got=(size.stride_h, size.stride_w),
                hint="describe the operation with kronop.conv.StrideSupport.Strided",
            )
        if what.interleaved:
            check_panels(size)
            for name in ("A", "B", "Z", "Y"):
                self._table[name] = dataclasses.replace(self._table[name], axes=_PANELS)
        shapes = shapes_of(size)
        own = {name: shapes[of] for name, of in zip("ABY", self._kind.tensors, strict=True)}
        for name, shape in own.items():
            if name in views:
                wanted = shape_in_memory(shape, self._described(name).layout)
                views[name] = shaped(self._called(name), views[name], wanted, flat=flat)
        found = shape_in_memory(own["Y"], what.Y.layout)
        if "Z" in views:
            interleaved, last = what.interleaved, own["Y"][-1]
            views["Z"] = spread_source(views["Z"], found, last, interleaved=interleaved, flat=flat)
        if "bias" in views:
            views["bias"] = self._bias(views["bias"], own["Y"])
        self._take_tree(what.Y.layout)
        self._check_reduced()
        return found

    def _size_from(self, views: Mapping[str, TensorView]) -> Conv2dSize:
        """The size that is given, or that the shapes of A and B say."""
        if self._given is not None:
            return self._given
        shapes = [views[name].shape for name in ("A", "B")]
        if self._description.interleaved:
            shapes = [plain_shape(shape, axes) for shape, axes in zip(shapes, ORDERS, strict=True)]
        for name, shape in zip("AB", shapes, strict=True):
            if len(shape) != len(AXES):
                raise misfit(name, "four dimensions", views[name].shape, "; or pass a problem_size")
        size = self._description.size_of(*shapes)
        return dataclasses.replace(size, slices=self._slices)

    def _bias(self, item: TensorView, shape: Ints) -> TensorView:
        """A bias of a result of this shape, whose channels are columns: of wgrad, they repeat for
        each pixel of a filter."""
        _, r, s, last = shape
        if item.shape != (last,):
            raise ArgumentError(
                "shape of bias",
                expected=(last,),
                got=item.shape,
                hint="one number for each channel of the result",
            )
        if self._kind is not Operator.wgrad:
            return item
        self._table["bias"] = dataclasses.replace(self._table["bias"], axes=_FILTER)
        return item.reshaped((r, s, last), (0, 0, item.strides[0]))

    def _check_reduced(self) -> None:
        """Refuses numbers for whole rows, or columns, where these lie in several products."""
        size, by_taps = self._size, self._description.by_taps
        axis, other = ("column", "row") if by_taps else ("row", "column")
        count = size.groups * (size.r * size.s if by_taps else 1)
        for item in self._visited:
            if item.result is not None and item.result.axis == axis and count > 1:
                raise ArgumentError(
                    f"axis of {item.name}",
                    expected=f"{other!r}, since each of several products computes a part of every"
                    f" {axis}",
                    got=f"{axis!r}, of {count} products",
                    hint="keep the reduced tensor as a result, and reduce it in a step of its own",
                )

    def _check(self, name: str, item: TensorView) -> None:
        if name == "bias":
            check_element(item.element, self._description.Y.element, name, ", the type of D")
        if name in ("Y", "Z") and self._rows == 1:
            item = as_rows(item)
        super()._check(name, item)

    def _shaped_items(self) -> Sequence[visited.Visited]:
        return [with_axes(item, self._shape) for item in self._visited]

    def _lead_of(self, shape: Ints) -> Ints:
        return ()

    def _placed_of(self, name: str, item: TensorView) -> Placed:
        """How kernels read or write it: a copy without gaps if they can't use its strides."""
        described, axes = self._described(name), len(self._table[name].axes)
        if name == "bias" and self._kind is Operator.wgrad:
            found = Placed.of(item, described, self._device, axes)
            if flat_stride(item.shape, found.strides) is not None:
                return found
            return dataclasses.replace(found, form=Form(item.shape, contiguous_strides(item.shape)))
        if name in ("A", "B", "Z", "Y"):
            if self._description.interleaved and self._is_host:
                return self._channels_last(item, ORDERS[name == "B"], described)
            found = Placed.of(item, described, self._device, axes)
            if found.form is not None or (item.size and not self._is_usable(name, found)):
                return dataclasses.replace(found, form=self._form_of(name, item, described))
            return found
        return super()._placed_of(name, item)

    def _form_of(self, name: str, item: TensorView, described: TensorDescription) -> Form | None:
        """The form of a copy that kernels can use."""
        if name in ("Y", "Z") and self._rows == 1:
            # Filters are rows of a matrix: gaps may be between them alone.
            # One that repeats for all filters is copied once.
            row, *within = contiguous_strides(item.shape)
            row = round_up(row, described.alignment) if item.strides[0] else 0
            return Form(item.shape, (row, *within))
        return form_for(item, described, self._device, item.shape)

    def _is_usable(self, name: str, item: Placed) -> bool:
        """Whether kernels can use the strides of a tensor."""
        if self._description.interleaved:
            return item.strides == contiguous_strides(item.shape)
        if name in ("Y", "Z"):
            return self._matrix(item) is not None
        pairs = zip(item.shape, item.strides, strict=True)
        return self._is_host or all(step > 0 for extent, step in pairs if extent > 1)

    def _channels_last(self, item: TensorView, order: Ints, described: TensorDescription) -> Placed:
        """An interleaved tensor as kernels of CPUs read it: a copy with the channels last."""
        shape, strides = (tuple(of[axis] for axis in order) for of in (item.shape, item.strides))
        lines, plain = item.reshaped(shape, strides), TensorDescription(described.element)
        form = form_for(lines, plain, self._device, shape)
        return Placed(view=lines, described=plain, inner=len(shape), form=form)

    def _matrix(self, item: Placed) -> tuple[int, int] | None:
        """The strides of rows and columns of D, or of C, as a matrix; None if it is none."""
        parts = (slice(self._rows), slice(self._rows, None))
        row, column = (flat_stride(item.shape[part], item.strides[part]) for part in parts)
        return None if row is None or column is None else (row, column)

    def _strides(self, name: str, item: Placed) -> Ints:
        if name == "bias" and self._kind is Operator.wgrad:
            return 0, flat_stride(item.shape, item.strides) or 0
        if name not in ("A", "B", "Z", "Y"):
            return super()._strides(name, item)
        if self._description.interleaved and not self._is_host:
            return item.strides
        if name in ("A", "B"):
            return along(item.shape, item.strides)
        found = self._matrix(item)
        assert found is not None
        return found

    @property
    def bias(self) -> bool:
        """Whether C has one number for each channel, which repeats: a bias, times beta."""
        source = self._views.get("Z")
        if source is None:
            return False
        axes = ORDERS[0][:ROWS] if self._description.interleaved else range(ROWS)
        steps = [source.strides[axis] for axis in axes if source.shape[axis] > 1]
        return bool(steps) and not any(steps)

    def _parallel(self) -> tuple[int, int, int] | None:
        if self.split_k_mode is not SplitKMode.Parallel:
            return None
        rows, columns, _ = self._kind.extents(self._size)
        return rows, columns, self._size.slices

    def _ended(
        self, operation: Any, C: Any, D: Any, output_op: EpilogueArguments | None
    ) -> Conv2dArguments:
        A, B, bias = self._tensors
        size, mode = self._size, self.split_k_mode
        return Conv2dArguments(operation, size, A, B, C, D, output_op, mode, size.slices, bias)

    @property
    def D(self) -> Any:
        """The tensor of the result."""
        return self.Y

    @property
    def problem_size(self) -> Conv2dProblemSize:
        """The extents of the convolution, in CUTLASS's words."""
        return Conv2dProblemSize.of(self._size)

    @property
    def size(self) -> Conv2dSize:
        return self._size

    @property
    def _is_empty(self) -> bool:
        return 0 in self._shape

    def _problem(self, places: Places, workspace: int) -> Conv2dProblem:
        _, found = self._place(places)
        return Conv2dProblem(
            kind=self._kind,
            size=self._size,
            a=found["A"],
            b=found["B"],
            y=four_axes(found["Y"], shapes_of(self._size)[self._kind.tensors[2]], self._rows),
            z=self._grouped(found["Z"]) if "Z" in found else None,
            bias=self._grouped(found["bias"]) if "bias" in found else None,
            visited=tuple(self._grouped(found[item.key]) for item in self._visited),
            scalars=self.output_op.scalars,
            threads=self._threads,
            by_taps=self._description.by_taps,
            workspace=workspace,
        )

    def _grouped(self, matrix: Strided) -> Strided:
        """A matrix like the result, for each of its products."""
        if len(matrix.strides) > 2:
            return matrix
        size, (row, column) = self._size, matrix.strides
        if self._description.by_taps:
            each = size.r * size.s * row
            steps = (size.filters * each, size.s * row, row)
            return dataclasses.replace(matrix, strides=(each, column), batch=steps)
        step = {
            Operator.fprop: size.filters * column,
            Operator.dgrad: size.channels * column,
            Operator.wgrad: size.filters * row,
        }[self._kind]
        return dataclasses.replace(matrix, batch=(step,))
