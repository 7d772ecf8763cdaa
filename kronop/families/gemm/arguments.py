"""Arguments of matrix products: tensors of any framework -> GemmProblem; of groups of products:
lists of tensors -> GemmGroupedProblem."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from kronop.args.placing import Placed
from kronop.args.protocols import OperationLike, Places, Planned
from kronop.args.tensor import check_element
from kronop.args.view import TensorView
from kronop.artifacts import Launch
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.visitor_arguments import VisitorArguments
from kronop.errors import ArgumentError
from kronop.families.gemm import panel_arguments
from kronop.families.gemm.description import (
    GemmDescription,
    GemmGroupedDescription,
    GemmGroupedProblem,
    GemmProblem,
)
from kronop.families.gemm.member_arguments import Members, lists_of
from kronop.families.gemm.panels import shape_in_memory
from kronop.families.gemm.shape_arguments import (
    check_others,
    check_panels,
    check_steps,
    product_of,
    shape_error,
    shaped,
)
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.slice_arguments import Slices
from kronop.families.gemm.vocabulary import GemmCoord, Mode, check_batch, check_mode, refuse_lists

Ints = tuple[int, ...]
# What arguments of one product call an item of a group's lists, where that is another name.
_OWN = {"problem_sizes": "problem_size", "biases": "bias"}


class GemmArguments(Slices, Members):
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

    describes: ClassVar[type] = GemmDescription
    made_for = "GemmOperationUniversal"
    _description: GemmDescription

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
        super().__init__(operation, output_op)
        self._mode = check_mode(gemm_mode, split_k_slices, batch)
        self._given_size, self._matrices, self._bias = problem_size, (A, B), bias
        given = {"A": A, "B": B, "C": C, "D": D}
        if gemm_mode is Mode.Array and any(isinstance(it, (list, tuple)) for it in given.values()):
            self._take_array(lists_of({"A": A, "B": B}, {"C": C, "D": D}), bias)
        else:
            refuse_lists(given, self._mode)
            self._accept(A=A, B=B, bias=bias, Z=C, Y=D)

    def _take_array(self, lists: Mapping[str, Any], bias: Any) -> None:
        """Accepts lists of matrices, each product of which has arguments of its own."""
        if isinstance(self.output_op, VisitorArguments):
            raise ArgumentError(
                "A of an operation with a visitor tree",
                expected="one tensor, whose operands and results the tree names",
                got="a list",
                hint="stack the matrices, or run the operation for each",
            )
        shared = {"problem_size": self._given_size, "output_op": self.output_op, "bias": bias}
        make = functools.partial(GemmArguments, self.operation, **shared)
        self._take_members(make, lists, "the array")
        check_batch((len(self.members),), self._mode)

    def _fit(self, views: dict[str, TensorView]) -> Ints:
        """The shape of D; flat tensors beside a problem size get those of matrices."""
        what, given = self._description, self._given_size
        if given is not None:
            views |= shaped(views, given, self._mode.batch, self._described)
        for name, item in views.items():
            if what.interleaved and name != "bias":
                check_panels(item, self._called(name))
        a, b = views["A"].shape, views["B"].shape
        (m, n, k), batch = product_of(a, b, what.A.layout, what.B.layout)
        if given is not None and (given.m, given.n, given.k) != (m, n, k):
            expected = f"({given.m}, {given.k}) and ({given.k}, {given.n}), the problem_size"
            hint = "a problem_size is kronop.gemm.GemmCoord(M, N, K)"
            raise shape_error("A and B", expected, (a, b), hint)
        check_batch(batch, self._mode)
        self._size = GemmSize(m, n, k, math.prod(batch), self._mode.slices)
        own = shape_in_memory((m, n), what.Y.layout)
        others = {name: item.shape for name, item in views.items() if name not in ("A", "B")}
        whole = len(own) if what.interleaved else 0
        check_others(others, (*batch, *own), n, whole)
        if whole:  # The extents of D are those of panels.
            self._table["Y"] = dataclasses.replace(self._table["Y"], axes="nmi")
        self._take_tree(what.Y.layout)
        return (*batch, *own)

    def _check(self, name: str, item: TensorView) -> None:
        if name == "bias":
            check_element(item.element, self._description.Y.element, name, ", the type of D")
        super()._check(name, item)
        if name in ("A", "B") and not self._is_host:
            check_steps(item, self._described(name), name)

    def _placed_of(self, name: str, item: TensorView) -> Placed:
        described = self._described(name)
        if described.interleaved:
            return panel_arguments.placed(item, described, self._device)
        return super()._placed_of(name, item)

    def _strides(self, name: str, item: Placed) -> Ints:
        described = self._described(name)
        if described.interleaved:
            return panel_arguments.strides(item, described, self._device)
        return super()._strides(name, item)

    @property
    def results(self) -> tuple[Any, ...]:
        """The tensors that a run writes, D, then auxiliary results of a visitor tree."""
        return tuple(member.Y for member in self.members) or super().results

    @property
    def bias(self) -> bool:
        """Whether C is one row or one column, which repeats: a bias, times beta."""
        source = self._views.get("Z")
        return source is not None and 0 in source.strides[-2:]

    def _parallel(self) -> tuple[int, int, int] | None:
        if self._mode.mode is not Mode.GemmSplitKParallel:
            return None
        return self.size.m, self.size.n, self._mode.slices

    def _ended(
        self, operation: Any, C: Any, D: Any, output_op: EpilogueArguments | None
    ) -> GemmArguments:
        extents = GemmCoord(self.size.m, self.size.n, self.size.k)
        (A, B), mode = self._matrices, self._mode
        return GemmArguments(
            operation, extents, A, B, C, D, output_op, mode.mode, mode.slices, bias=self._bias
        )

    @property
    def D(self) -> Any:
        """The tensor of the result; the list of them in the mode Array with lists."""
        return [*self.results] if self.members else self.Y

    @property
    def size(self) -> GemmSize:
        return super().size if self.members else self._size

    @property
    def views(self) -> Mapping[str, TensorView]:
        """The operands of one product, by name."""
        return self._views

    def problem(self, places: Places) -> GemmProblem:
        """One product, without scratch memory, with operands at these places."""
        return self._problem(places, 0)

    def _launched(self, planned: Planned, places: Places) -> tuple[Launch, ...]:
        if not self.members:
            return super()._launched(planned, places)
        workspace = places.workspace(self._needed(planned))
        problems = [member._problem(places, workspace) for member in self._sizes]
        return tuple(launch for problem in problems for launch in planned.launches(problem))

    def _problem(self, places: Places, workspace: int) -> GemmProblem:
        batch, found = self._place(places)
        return GemmProblem(
            m=self._size.m,
            n=self._size.n,
            k=self._size.k,
            batch=batch,
            a=found["A"],
            b=found["B"],
            y=found["Y"],
            z=found.get("Z"),
            bias=found.get("bias"),
            visited=tuple(found[item.key] for item in self._visited),
            scalars=self.output_op.scalars,
            threads=self._threads,
            slices=self._size.slices,
            workspace=workspace,
        )


class GemmGroupedArguments(Members):
    """The tensors and scalars of a group of matrix products, `D_g = epilogue(A_g B_g, C_g)` for
    each product g.

    Args:
        operation: a GemmOperationGrouped.
        problem_sizes: a `kronop.gemm.GemmCoord` for each product; None for what the tensors'
            shapes say. With it, tensors may be flat, as of GemmArguments.
        A, B: lists of tensors (M, K) and (K, N), each of its own sizes; or a stacked tensor.
        C: a list of tensors (M, N), or a stacked one; needed where beta is not 0.
        D: where the results go, likewise; None for new tensors.
        output_op: `operation.epilogue_type(alpha, beta, ...)`, of all products.
        biases: a list of tensors (N), likewise; None for none.

    Raises:
        ElementTypeError: not a list, a tensor's element type, or what is no tensor.
        ArgumentError: lists of other lengths, results that overlap, or a product whose arguments do
            not fit: the message has its number.
        OutOfMemoryError: no room for a result.

    Example:
        >>> matrix = kronop.TensorDescription(kronop.float32)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> operation = kronop.GemmOperationGrouped("x86", None, matrix, matrix, matrix, epilogue)
        >>> As = [np.ones((2, 3), np.float32), np.ones((1, 5), np.float32)]
        >>> Bs = [np.ones((3, 2), np.float32), np.ones((5, 4), np.float32)]
        >>> arguments = kronop.GemmGroupedArguments(operation=operation, A=As, B=Bs)
        >>> [product.shape for product in arguments.D]
        [(2, 2), (1, 4)]
    """

    describes: ClassVar[type] = GemmGroupedDescription
    made_for = "GemmOperationGrouped"

    def __init__(
        self,
        operation: OperationLike,
        problem_sizes: Sequence[GemmCoord] | None = None,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        output_op: EpilogueArguments | None = None,
        biases: Any = None,
    ) -> None:
        super().__init__(operation, output_op)
        others = {"problem_sizes": problem_sizes, "C": C, "D": D, "biases": biases}
        lists = lists_of({"A": A, "B": B}, others)
        product: Any = operation
        make = functools.partial(GemmArguments, product.product, output_op=self.output_op)
        self._take_members(
            make, {_OWN.get(name, name): items for name, items in lists.items()}, "the group"
        )

    @property
    def D(self) -> tuple[Any, ...]:
        """The tensors of the results."""
        return self.results

    def _problem(self, places: Places, workspace: int) -> GemmGroupedProblem:
        problems = tuple(member._problem(places, workspace) for member in self._sizes)
        return GemmGroupedProblem(problems=problems)
