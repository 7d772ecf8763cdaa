"""Arguments of matrix products: tensors of any framework -> GemmProblem."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from kronop.args import placing
from kronop.args import visited as visited_arguments
from kronop.args.checks import check_source, description_of
from kronop.args.protocols import OperationLike, Places
from kronop.args.strides import broadcast_strides
from kronop.args.tensor import check_element, check_promise, empty, view
from kronop.args.view import TensorView
from kronop.descriptions.datatype import Layout
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ArgumentError, mismatch
from kronop.families.gemm import panel_arguments
from kronop.families.gemm.description import GemmDescription, GemmProblem
from kronop.families.gemm.member_arguments import Members, made, rows_of
from kronop.families.gemm.modes import check_batch, check_mode, refuse_lists
from kronop.families.gemm.panels import DIMENSIONS, shape_in_memory
from kronop.families.gemm.shape_arguments import (
    CALLED,
    check_others,
    check_size,
    check_steps,
    leading,
    shape_error,
    shaped,
    size_of,
)
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import GemmCoord, Mode

Ints = tuple[int, ...]
DIFFERENTIABLE = "kronop.torch.matmul"


class GemmArguments(Members):
    """The tensors and scalars of a matrix product, `D = epilogue(A B, C, bias)`.

    Args:
        operation: a GemmOperationUniversal.
        problem_size: `kronop.gemm.GemmCoord(M, N, K)`; None for what the shapes of A and B say.
            With it, tensors may be flat, as PyCUTLASS's are: they then hold matrices in the
            described layout, without gaps, one after the other.
        A: (..., M, K), any strides. Of an interleaved product A, B, C and D are arrays of panels:
            (..., K/32, M, 32), (..., K/32, N, 32) and (..., N/32, M, 32), whose last two strides
            are 32 and 1.
        B: (..., K, N); leading dimensions broadcast.
        C: (..., M, N), which broadcasts; needed where beta is not 0, and read only there. It may be
            D itself. A flat one beside a `problem_size` may be one row of N elements or, of a
            column-major C, one column of M, that repeats: as in PyCUTLASS, a bias times beta.
        D: (..., M, N), where the result goes; None for a new tensor like A, without gaps, in the
            described layout.
        output_op: `operation.epilogue_type(alpha, beta, ...)`; None for its defaults, without C.
            That of a visitor tree has names, and holds C, a bias and D, as far as there are any.
        gemm_mode: one of `kronop.gemm.Mode`. In the mode Array, A, B, C and D may be lists of
            matrices, which lie anywhere in memory: all of them that are given, or none.
        split_k_slices: into how many slices GPUs cut the sum; in the modes Gemm and
            GemmSplitKParallel. CPUs cut it as their threads need, whatever the number.
        batch: how many products, in the modes Batched and Array.
        bias: (N), of the result's type, is added to each row before an activation; None for none.
            The attribute of this name is another matter, as PyCUTLASS's is: whether C is a vector.

    Everything is checked here; nothing is computed, and nothing but D is allocated, before the
    first run. What only CUTLASS's kernels refuse (extents, strides or a bias that they do not
    take) is known when these kernels are prepared, at the first run.

    Raises:
        ElementTypeError: not a tensor, or another element type than the operation's.
        ArgumentError: shapes, devices, modes or overlaps that do not fit.
        OutOfMemoryError: no room for D.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.GemmOperationUniversal("x86", None, matrix, matrix, matrix, epilogue)
        >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
        >>> arguments = kronop.GemmArguments(operation=operation, A=a, B=b)
        >>> operation.run(arguments)
        >>> arguments.D.tolist()
        [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]]
    """

    called: ClassVar[Mapping[str, str]] = MappingProxyType(CALLED)
    _visited: tuple[visited_arguments.Visited, ...] = ()
    _in_place = False

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
        description_of(operation, GemmDescription, "GemmOperationUniversal")
        super().__init__(operation, output_op)
        self._mode = check_mode(gemm_mode, split_k_slices, batch)
        given = {"A": A, "B": B, "C": C, "D": D}
        if gemm_mode is Mode.Array and any(isinstance(it, (list, tuple)) for it in given.values()):
            self._take_array(problem_size, given, bias)
        else:
            self._take_one(problem_size, given, bias)

    def _take_one(
        self, problem_size: GemmCoord | None, given: Mapping[str, Any], bias: Any
    ) -> None:
        """Accepts the tensors of one product, or of a batch of equally distant ones."""
        what, (A, B, C, D) = self.operation.description, given.values()
        tree = self.output_op if isinstance(self.output_op, VisitorArguments) else None
        if tree is not None:
            others = {"C": C, "bias": bias}
            D, C, bias = visited_arguments.taken(tree, D, others), None, None
            self._visited = visited_arguments.visited(
                what.epilogue, tree, what.Y.layout, DIFFERENTIABLE
            )
        self._described = {
            "A": what.A,
            "B": what.B,
            "Z": what.Y,
            "Y": what.Y,
            "bias": TensorDescription(what.Y.element),
        }
        operands = {"A": A, "B": B, "Z": C, "Y": D, "bias": bias}
        refuse_lists(given, self._mode)
        views = {
            name: view(item, CALLED.get(name, name), DIFFERENTIABLE)
            for name, item in operands.items()
            if item is not None or name in ("A", "B")
        }
        if problem_size is not None:
            views = shaped(views, check_size(problem_size), self._mode.batch, self._described)
        check_source(self.output_op, views.get("Z"), "C")
        self._size = size_of(views, problem_size, self._described)
        self._matrices = (A, B)
        self._settle(views | {item.key: item.view for item in self._visited})
        self._check_promises(views)
        own_dimensions = DIMENSIONS if what.Y.interleaved else 2
        self._batch = leading(views["A"].shape, views["B"].shape, own_dimensions)
        own = shape_in_memory((self._size.m, self._size.n), what.Y.layout)
        self._shape = shape = (*self._batch, *own)
        check_batch(self._batch, self._mode)
        self._check_shapes(views)
        if D is None and what.Y.layout is Layout.ColumnMajor:
            turned = (*shape[:-2], shape[-1], shape[-2])
            D = empty(views["A"], turned, what.Y.element).swapaxes(-1, -2)
            views["Y"] = view(D, "D")
        self._settle_result(D, views, shape, what.Y.element)
        if "Z" in views:  # A source of fewer rows, columns or problems repeats over the result.
            strides = broadcast_strides(views["Z"].shape, views["Z"].strides, shape)
            self._views = views | {"Z": views["Z"].reshaped(shape, strides)}
        if tree is not None:
            self._take_visited(tree)

    def _check_promises(self, views: Mapping[str, TensorView]) -> None:
        """Raises unless tensors are as described; operands of a GPU also step forward."""
        if "bias" in views:
            check_element(
                views["bias"].element, self._described["Y"].element, "bias", ", the type of D"
            )
        for name, item in views.items():
            check_promise(item, self._described[name], CALLED.get(name, name))
            if not self._is_host and name in ("A", "B"):
                check_steps(item, self._described[name], name)

    def _take_array(
        self, problem_size: GemmCoord | None, given: Mapping[str, Any], bias: Any
    ) -> None:
        """Accepts lists of matrices, each product of which has arguments of its own."""
        if isinstance(self.output_op, VisitorArguments):
            raise ArgumentError(
                mismatch(
                    "A of an operation with a visitor tree",
                    expected="one tensor, whose operands and results the tree names",
                    got="a list",
                    hint="stack the matrices, or run the operation for each",
                )
            )
        rows = rows_of(given, {name: name for name in given}, ("C", "D"))
        make = functools.partial(
            GemmArguments, self.operation, problem_size, output_op=self.output_op, bias=bias
        )
        self._take_members([*made(make, rows, "the array")])
        check_batch((len(rows),), self._mode)

    def _take_visited(self, tree: VisitorArguments) -> None:
        """Accepts the operands and auxiliary results of a visitor tree."""
        self._visited = visited_arguments.fitted(self._visited, self._shape, tree.problem_size)
        inputs = {name: self._views[name] for name in ("A", "B")}
        self._in_place = visited_arguments.check_overlaps(self._visited, self._views["Y"], inputs)
        self._views = {**self._views, **{item.key: item.view for item in self._visited}}
        self._described |= {item.key: item.described for item in self._visited}
        tree.attach(self)

    @property
    def results(self) -> tuple[Any, ...]:
        """The tensors that a run writes, D, then auxiliary results of a visitor tree."""
        if self.members:
            return tuple(member.Y for member in self.members)
        return (self.Y, *(item.owner for item in self._visited if item.result))

    @property
    def accumulates(self) -> bool:
        """Whether a run reads what an earlier one wrote, as C, or as an operand of a tree."""
        return self._source_is_result or self._in_place

    def _check_shapes(self, views: Mapping[str, TensorView]) -> None:
        names = [name for name in ("bias", "Y", "Z") if name in views]
        check_others({name: views[name].shape for name in names}, self._shape, self._size.n)
        if self._described["Y"].interleaved and "Z" in views:  # Panels repeat as a whole.
            own = self._shape[-DIMENSIONS:]
            if views["Z"].shape[-DIMENSIONS:] != own:
                raise shape_error("C", f"(..., {own})", views["Z"].shape)

    @property
    def bias(self) -> bool:
        """Whether C is one row or one column, which repeats: a bias, times beta."""
        source = self._views.get("Z")
        return source is not None and 0 in source.strides[-2:]

    @property
    def ptr_D(self) -> GemmArguments:
        """What PyCUTLASS's programs pass to `ReductionArguments` as `workspace`: these arguments,
        which keep the sums of their slices to themselves."""
        return self

    def _leave(self) -> None:
        """Runs nothing from now on, since a `ReductionArguments` runs the product."""
        self.launchers = self._steps = ()
        self._placement, self._kept, self._count_change = None, (), None

    @property
    def D(self) -> Any:
        """The tensor of the result; the list of them in the mode Array with lists."""
        return [member.Y for member in self.members] if self.members else self.Y

    @property
    def size(self) -> GemmSize:
        if self.members:
            return self.mean_size()
        size = replace(self._size, slices=self._mode.slices)
        return size.times(math.prod(self._batch))

    def problem_at(self, places: Places, workspace: int) -> GemmProblem:
        """The problem, as one of several that share scratch memory at `workspace`."""
        return self._problem(places, workspace)

    def _problem(self, places: Places, workspace: int) -> GemmProblem:
        names = [name for name in ("A", "B", "bias", "Z", "Y") if name in self._views]
        if "Z" in names and (not self.output_op.beta or self._source_is_result):
            names.remove("Z")
        names += [item.key for item in self._visited]
        # What is read again where it was written is copied for kernels once.
        same = {"Z": "Y"} if self._source_is_result else self._read_again()
        laid = placing.walkable(
            self._batch,
            {name: self._laid(name) for name in names if name not in same},
            self._device,
        )
        extents, batches = placing.collapsed(self._batch, laid)
        matrices = {}
        for name, item in laid.items():
            row, column = self._strides(name, item)
            pointer = self._taken(places, name, item, read=name in same.values())
            matrices[name] = Strided(pointer=pointer, strides=(row, column), batch=batches[name])
        operand = {**matrices, **{name: matrices[result] for name, result in same.items()}}.get
        a, b, y = operand("A"), operand("B"), operand("Y")
        assert a is not None
        assert b is not None
        assert y is not None
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
            visited=tuple(filter(None, (operand(item.key) for item in self._visited))),
            scalars=self.output_op.scalars,
            threads=self._threads,
            slices=self._mode.slices,
            workspace=workspace,
        )

    def _read_again(self) -> dict[str, str]:
        """Operands of a visitor tree that are results."""
        written = {item.key: item.view for item in self._visited if item.result}
        return visited_arguments.read_again(self._visited, {"Y": self._views["Y"], **written})

    @property
    def _result_names(self) -> tuple[str, ...]:
        """The names of the results among operands."""
        return ("Y", *(item.key for item in self._visited if item.result is not None))

    def _laid(self, name: str) -> placing.Laid:
        item, described = self._views[name], self._described[name]
        if described.interleaved:
            return panel_arguments.laid(item, described, self._device)
        return placing.Laid.of(
            item, described, self._device, visited_arguments.INNER[self._kind(name)]
        )

    def _strides(self, name: str, item: placing.Laid) -> tuple[int, int]:
        """The strides of an operand's rows and columns."""
        if self._described[name].interleaved:
            return panel_arguments.strides(item, self._described[name], self._device)
        return placing.matrix_of(item, self._kind(name))

    def _kind(self, name: str) -> str:
        if name == "bias":
            return "row"
        return next((item.kind for item in self._visited if item.key == name), "tensor")

    def _taken(self, places: Places, name: str, item: placing.Laid, *, read: bool) -> int:
        if name in self._result_names:
            return places.output(name, item.view, item.form, read=read).pointer
        return places.input(name, item.view, item.form).pointer
