"""Arguments of matrix products: tensors of any framework -> GemmProblem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from kronop.args.base import Arguments, OperationLike, Places
from kronop.args.checks import check_source, description_of
from kronop.args.staging import form_for
from kronop.args.strides import (
    broadcast_shapes,
    broadcast_strides,
    matrix_strides,
    merged,
)
from kronop.args.tensor import check_promise, view
from kronop.args.view import TensorView
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shared import whole
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, StridedMatrix
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.families.gemm.description import GemmDescription, GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import GemmCoord, Mode
from kronop.frozen import dataclass

Ints = tuple[int, ...]
DIFFERENTIABLE = "kronop.torch.matmul"
_CALLED: Mapping[str, str] = MappingProxyType({"Z": "C", "Y": "D"})


class GemmArguments(Arguments):
    """D = epilogue(A B, C, bias).

    Args:
        operation: a GemmOperationUniversal.
        problem_size: `kronop.gemm.GemmCoord(M, N, K)`; None for what the shapes of A and B say. With
            it, tensors may be flat, as PyCUTLASS's are: they then hold matrices in the described
            layout, without gaps, one after the other.
        A: (..., M, K), any strides.
        B: (..., K, N); leading dimensions broadcast.
        C: (..., M, N), which broadcasts; needed where beta is not 0, and read only there. It may be
            D itself.
        D: (..., M, N), where the result goes; None for a new tensor like A.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without C.
        gemm_mode: one of `kronop.gemm.Mode`.
        split_k_slices: into how many slices the sum is cut; in the modes Gemm and
            GemmSplitKParallel.
        batch: how many products, in the modes Batched and Array.
        bias: (N), of the result's type, is added to each row before an activation; None for none.

    Everything is checked here; nothing is computed, and nothing but D is allocated, before the
    first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, devices, modes or overlaps that do not fit.
        OutOfMemoryError: no room for D.
    """

    called: ClassVar[Mapping[str, str]] = _CALLED

    def __init__(
        self,
        operation: OperationLike,
        problem_size: GemmCoord | None = None,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        output_op: EpilogueArguments | None = None,
        gemm_mode: Mode = Mode.Gemm,
        split_k_slices: int = 1,
        batch: int = 1,
        bias: Any = None,
    ) -> None:
        what = description_of(operation, GemmDescription)
        super().__init__(operation, output_op)
        self._mode = check_mode(gemm_mode, split_k_slices, batch)
        given = {"A": A, "B": B, "Z": C, "Y": D, "bias": bias}
        self._described = {
            "A": what.A,
            "B": what.B,
            "Z": what.Y,
            "Y": what.Y,
            "bias": TensorDescription(what.Y.element),
        }
        views = {
            name: view(item, _CALLED.get(name, name), DIFFERENTIABLE)
            for name, item in given.items()
            if item is not None or name in ("A", "B")
        }
        if problem_size is not None:
            views = _shaped(views, _checked(problem_size), self._mode.batch, self._described)
        check_source(self.output_op, views.get("Z"), "C")
        self._size = _size_of(views, problem_size)
        self._settle(views)
        for name, item in views.items():
            check_promise(item, self._described[name], _CALLED.get(name, name))
        shape = (*self._lead(views), self._size.m, self._size.n)
        _check_batch(shape[:-2], self._mode)
        self._shape = shape
        self._check_shapes(views)
        self._settle_result(D, views, shape, what.Y.element)
        if "Z" in views:  # A source of fewer rows, columns or problems repeats over the result.
            lead = broadcast_strides(views["Z"].shape, views["Z"].strides, shape)
            self._views["Z"] = views["Z"].reshaped(shape, lead)

    def _lead(self, views: Mapping[str, TensorView]) -> Ints:
        return broadcast_shapes([(name, views[name].shape[:-2]) for name in ("A", "B")])

    def _check_shapes(self, views: Mapping[str, TensorView]) -> None:
        n, shape = self._size.n, self._shape
        if "bias" in views and views["bias"].shape != (n,):
            raise _shape_error("bias", f"({n},): a number for each column", views["bias"].shape)
        if "Y" in views and views["Y"].shape != shape:
            raise _shape_error("D", f"{shape}: leading dimensions, M, N", views["Y"].shape)
        if "Z" in views:
            own = views["Z"].shape
            fits = len(own) <= len(shape) and all(
                mine in (1, goal)
                for mine, goal in zip(reversed(own), reversed(shape), strict=False)
            )
            if not fits:
                raise _shape_error("C", f"{shape}, or what broadcasts to it", own)

    @property
    def D(self) -> Any:
        """The tensor of the result."""
        return self.Y

    @property
    def size(self) -> GemmSize:
        return self._size.times(math.prod(self._shape[:-2]))

    def _problem(self, places: Places, workspace: int) -> GemmProblem:
        names = [name for name in ("A", "B", "bias", "Z", "Y") if name in self._views]
        if not self.output_op.beta and "Z" in names:
            names.remove("Z")
        placed = {name: self._placed(places, name) for name in names}
        extents, batches = _collapsed(self._shape[:-2], placed)

        def operand(name: str) -> StridedMatrix | None:
            item = placed.get(name)
            if item is None:
                return None
            row, column = item.own
            return StridedMatrix(pointer=item.pointer, row=row, column=column, batch=batches[name])

        a, b, y = operand("A"), operand("B"), operand("Y")
        assert a is not None and b is not None and y is not None
        return GemmProblem(
            m=self._size.m,
            n=self._size.n,
            k=self._size.k,
            batch=extents,
            a=a,
            b=b,
            y=y,
            z=operand("Z"),
            bias=operand("bias"),
            scalars=self.output_op.scalars,
            threads=self._threads,
            slices=self._mode.slices,
            parallel=self._mode.mode is Mode.GemmSplitKParallel,
            workspace=workspace,
        )

    def _placed(self, places: Places, name: str) -> Placed:
        if name == "Z" and self._source_is_result:
            name = "Y"
        item = self._views[name]
        form = form_for(item, self._described[name], self._device)
        strides = item.strides if form is None else form.strides
        if name == "Y":
            where = places.output(name, item, form, read=self._source_is_result)
        else:
            where = places.input(name, item, form)
        inner = min(len(item.shape), 2)
        own = [
            stride if extent > 1 else 0
            for extent, stride in zip(item.shape[-inner:], strides[-inner:], strict=True)
        ]
        lead = len(item.shape) - inner
        return Placed(
            pointer=where.pointer,
            lead=item.shape[:lead],
            strides=tuple(strides[:lead]),
            own=(own[-2] if inner == 2 else 0, own[-1]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An operand where kernels find it: leading dimensions with their strides, and the strides of
    rows and columns."""

    pointer: int
    lead: Ints
    strides: Ints
    own: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A mode with its numbers."""

    mode: Mode
    slices: int
    batch: int


def check_mode(mode: object, slices: object, batch: object) -> Checked:
    """The mode, where its numbers are whole and belong to it.

    Raises:
        ElementTypeError: it is no mode.
        ArgumentError: there are slices of a batch, a batch in a mode of one product, or a number
            that is not a positive integer.
    """
    if not isinstance(mode, Mode):
        raise ElementTypeError(
            mismatch(
                "gemm_mode",
                expected=f"one of {', '.join(f'kronop.gemm.Mode.{item.name}' for item in Mode)}",
                got=repr(mode),
                hint="for example kronop.gemm.Mode.Gemm",
            )
        )
    numbers = {"split_k_slices": whole(slices), "batch": whole(batch)}
    batched = mode in (Mode.Batched, Mode.Array)
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ArgumentError(
                mismatch(name, expected="a positive integer", got=repr(value), hint="1 for none")
            )
        if value != 1 and batched == (name == "split_k_slices"):
            others = "Gemm or GemmSplitKParallel" if batched else "Batched or Array"
            raise ArgumentError(
                mismatch(
                    f"{name} in mode {mode.name}",
                    expected="1",
                    got=value,
                    hint=f"take kronop.gemm.Mode.{others}",
                )
            )
    return Checked(mode=mode, slices=numbers["split_k_slices"], batch=numbers["batch"])


def _checked(size: object) -> GemmCoord:
    if not isinstance(size, GemmCoord):
        raise ElementTypeError(
            mismatch(
                "problem_size",
                expected="a kronop.gemm.GemmCoord",
                got=repr(size),
                hint="kronop.gemm.GemmCoord(M, N, K), or None",
            )
        )
    return size


def _shaped(
    views: Mapping[str, TensorView],
    size: GemmCoord,
    batch: int,
    described: Mapping[str, TensorDescription],
) -> dict[str, TensorView]:
    """The views, where flat ones are matrices of these extents in the described layouts."""
    extents = {"A": (size.m, size.k), "B": (size.k, size.n)} | dict.fromkeys(
        ("Z", "Y"), (size.m, size.n)
    )
    found = dict(views)
    for name, matrix in extents.items():
        item = views.get(name)
        if item is None or len(item.shape) != 1:
            continue
        shape = (batch, *matrix) if batch > 1 else matrix
        called = _CALLED.get(name, name)
        if name == "Z" and item.shape == (size.n,) and math.prod(shape) != size.n:
            continue  # A bias, which broadcasts over rows.
        if item.shape[0] != math.prod(shape):
            expected = f"{math.prod(shape)} elements, {' x '.join(map(str, shape))}"
            raise _shape_error(called, expected, item.shape)
        steps = matrix_strides(shape, described[name].layout, 1)
        strides = tuple(item.strides[0] * step for step in steps)
        found[name] = item.reshaped(shape, strides)
    return found


def _size_of(views: Mapping[str, TensorView], given: GemmCoord | None) -> GemmSize:
    """The extents of one product.

    Raises:
        ArgumentError: A and B are no matrices, do not fit each other, or are of another size than
            `given`.
    """
    for name in ("A", "B"):
        if len(views[name].shape) < 2:
            hint = "flat tensors need a problem_size; reshape a vector to one row or column"
            raise _shape_error(name, "at least two dimensions", views[name].shape, hint)
    (m, k), (depth, n) = views["A"].shape[-2:], views["B"].shape[-2:]
    if k != depth:
        raise _shape_error(
            "B",
            f"(..., {k}, N), as A of shape {views['A'].shape} has {k} columns",
            views["B"].shape,
        )
    if given is not None and (given.m, given.n, given.k) != (m, n, k):
        raise _shape_error(
            "A and B",
            f"({given.m}, {given.k}) and ({given.k}, {given.n}), the problem_size",
            (views["A"].shape, views["B"].shape),
        )
    return GemmSize(m, n, k)


def _check_batch(lead: Ints, mode: Checked) -> None:
    if mode.slices > 1 and math.prod(lead) > 1:
        raise ArgumentError(
            mismatch(
                "split_k_slices",
                expected="1, because A or B has leading dimensions",
                got=mode.slices,
                hint="a batch has blocks enough",
            )
        )
    if mode.batch != 1 and math.prod(lead) != mode.batch:
        raise ArgumentError(
            mismatch(
                "batch",
                expected=f"{math.prod(lead)}, as the leading dimensions of A and B say",
                got=mode.batch,
                hint="leave it 1, or pass as many matrices",
            )
        )


def _shape_error(
    name: str, expected: str, got: object, hint: str = "check the tensors' shapes"
) -> ArgumentError:
    return ArgumentError(mismatch(f"shape of {name}", expected=expected, got=got, hint=hint))


def _collapsed(lead: Ints, placed: Mapping[str, Placed]) -> tuple[Ints, dict[str, Ints]]:
    """(extents of as few batch dimensions as possible, strides of every operand over them).

    Raises:
        ArgumentError: more are left than kernels walk.
    """
    steps = [broadcast_strides(item.lead, item.strides, lead) for item in placed.values()]
    every = zip(lead, zip(*steps, strict=True), strict=True)
    axes = merged([(extent, strides) for extent, strides in every if extent != 1])
    if len(axes) > MOST_BATCH_DIMENSIONS:
        raise ArgumentError(
            mismatch(
                "batch",
                expected=f"at most {MOST_BATCH_DIMENSIONS} leading dimensions without a common"
                " stride",
                got=f"{len(axes)} of shape {lead}",
                hint="copy what is broadcast or transposed there",
            )
        )
    strides = {name: tuple(step[index] for _, step in axes) for index, name in enumerate(placed)}
    return tuple(extent for extent, _ in axes), strides
