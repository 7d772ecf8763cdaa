"""What local tensors of a product over ranks have to be, and what ranks have to agree on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from kronop.descriptions.datatype import FLOAT8, TENSOR_TYPES
from kronop.distributed.steps import Problem
from kronop.errors import ArgumentError, ElementTypeError, converting
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A product of a rank's share.

    Attributes:
        x: (m, K / ranks), or (m, A, B / ranks) of a product that stayed split.
        factors: local tensors.
        alpha, beta: numbers, beta None without z.
        z: like the result, or None.
        ordered: whether the result is split as x is.
        left: whether the caller has x and z transposed, whose shapes messages tell.
    """

    x: torch.Tensor
    factors: Sequence[torch.Tensor]
    alpha: float
    beta: float | None
    z: torch.Tensor | None
    ordered: bool
    left: bool = False

    def told(self, *shape: object) -> str:
        """A shape of x or z as the caller knows it."""
        return f"({', '.join(map(str, shape[::-1] if self.left else shape))})"

    @property
    def by_rows(self) -> bool:
        """Whether a row of x is contiguous, or can be made so as well as a column."""
        return self.x.dim() != 2 or self.x.is_contiguous() or not self.x.mT.is_contiguous()

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple((int(item.shape[0]), int(item.shape[1])) for item in self.factors)

    @property
    def signature(self) -> str:
        """What decides which messages ranks send, in words."""
        tensors = [self.x, *self.factors, *([] if self.z is None else [self.z])]
        grads = [at for at, item in enumerate(tensors) if item.requires_grad]
        z = "none" if self.z is None else f"{tuple(self.z.shape)} of {_kind(self.z)}"
        kinds = ", ".join(sorted({_kind(item) for item in self.factors}))
        return (
            f"x {tuple(self.x.shape)} of {_kind(self.x)}, its"
            f" {'rows' if self.by_rows else 'columns'} contiguous, factors"
            f" {', '.join(map(str, self.shapes))} of {kinds}, z {z}, output"
            f" {'standard' if self.ordered else 'any'}, gradients of operands"
            f" {grads if torch.is_grad_enabled() else []}"
        )

    @property
    def scalars(self) -> str:
        beta = "none" if self.beta is None else float(self.beta)
        return f"alpha={float(self.alpha)}, beta={beta}"


def _kind(item: torch.Tensor) -> str:
    return str(item.dtype).removeprefix("torch.")


def check_tensors(**operands: object) -> None:
    """Raises ElementTypeError where one is no tensor of torch."""
    for name, item in operands.items():
        if item is not None and not isinstance(item, torch.Tensor):
            hint, got = "torch.as_tensor makes one", type(item).__name__
            raise ElementTypeError(name, expected="a torch tensor", got=got, hint=hint)


def group_of(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group, or that of all ranks.

    Raises:
        ArgumentError: there is none, or this rank is none of its ranks.
    """
    if not (dist.is_available() and dist.is_initialized()):
        expected, hint = "an initialised process group", "call torch.distributed.init_process_group"
        raise ArgumentError("group", expected=expected, got="none", hint=hint)
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup) or dist.get_rank(group) < 0:
        expected, hint = "a group of this rank", "call this on the group's ranks alone"
        got = f"{group!r} on rank {dist.get_rank()}"
        raise ArgumentError("group", expected=expected, got=got, hint=hint)
    return group


def check_factors(factors: Sequence[torch.Tensor]) -> None:
    """Raises ArgumentError unless there are some, all matrices."""
    if not factors:
        hint = "give (P, Q) tensors"
        raise ArgumentError("factors", expected="at least one", got="none", hint=hint)
    for at, item in enumerate(factors):
        if item.dim() != 2:
            hint, shape = "batches of factors are for one rank", tuple(item.shape)
            raise ArgumentError(f"factors[{at}]", expected="(P, Q)", got=shape, hint=hint)


def check_whole(
    x: torch.Tensor, factors: Sequence[torch.Tensor], z: torch.Tensor | None, *, left: bool
) -> None:
    """Raises ArgumentError where x and z do not fit, of which this rank has not only some columns:
    (..., M, K), or (..., K, M) on the left. Later messages would tell the shapes of shares."""
    inner, outer = (math.prod(int(item.shape[at]) for item in factors) for at in (left, not left))
    given, is_spread = tuple(x.shape), isinstance(x, DTensor)
    wanted = f"(K, M), with K = {inner}" if left else f"(M, K), with K = {inner}"
    hint = f"K is the product of the factors' {'columns' if left else 'rows'}"
    if is_spread and not left:
        wanted += ", or (M, A, B) of a product with output='any', with A x B = K"
        given = (given[0], math.prod(given[1:])) if len(given) == 3 else given
    dims = len(given)
    fits = dims == 2 or (not is_spread and dims > left)
    if not fits or given[-2 if left else -1] != inner:
        raise ArgumentError("shape of x", expected=wanted, got=tuple(x.shape), hint=hint)
    result = (outer, given[-1]) if left else (*given[:-1], outer)
    if z is not None and dims == 2 and tuple(z.shape) != result:
        hint, shape = "z is like the result", tuple(z.shape)
        raise ArgumentError("shape of z", expected=result, got=shape, hint=hint)


def check_local(factors: Sequence[torch.Tensor], x: torch.Tensor) -> None:
    """Raises what is wrong with factors on this rank alone, before others are asked."""
    for at, item in enumerate(factors):
        if isinstance(item, DTensor):
            expected, hint = "a local tensor, as x is", "give factor.full_tensor(), or a DTensor x"
            got = "a DTensor"
            raise ArgumentError(f"factors[{at}]", expected=expected, got=got, hint=hint)
    if _kind(x) not in TENSOR_TYPES or TENSOR_TYPES[_kind(x)] in FLOAT8:
        known = ", ".join(key for key, item in TENSOR_TYPES.items() if item not in FLOAT8)
        hint = converting(_kind(x), "convert x and the factors")
        raise ElementTypeError(
            "element type of x", expected=f"one of {known}", got=_kind(x), hint=hint
        )


def check_operands(call: Call, ranks: int) -> None:
    """Raises ElementTypeError or ArgumentError where types, the shape of z or scalars do not fit;
    all ranks have the same ones."""
    for at, item in enumerate(call.factors):
        if item.dtype != call.x.dtype:
            expected, hint = f"{call.x.dtype}, that of x", "convert it to the type that is expected"
            raise ElementTypeError(
                f"element type of factors[{at}]", expected=expected, got=item.dtype, hint=hint
            )
    kind = torch.int32 if call.x.dtype is torch.int8 else call.x.dtype
    results = (int(call.x.shape[0]), math.prod(q for _, q in call.shapes) // ranks)
    if call.z is not None and call.z.dtype != kind:
        hint = "z is like the result"
        raise ElementTypeError("element type of z", expected=kind, got=call.z.dtype, hint=hint)
    if call.z is not None and tuple(call.z.shape) != results:
        expected, got = call.told(*results), call.told(*call.z.shape)
        hint = "z is like the result"
        raise ArgumentError("shape of z", expected=expected, got=got, hint=hint)
    for name in ("alpha", "beta"):
        value = getattr(call, name)
        if not kind.is_floating_point and value is not None and float(value) != int(value):
            expected, hint = f"an integer, since results are {kind}", "convert x to floats"
            raise ArgumentError(name, expected=expected, got=value, hint=hint)


def problem_of(call: Call, ranks: int) -> Problem:
    """Of columns that are split, in one row of ranks.

    Raises:
        ArgumentError: x does not fit.
    """
    problem = Problem(
        m=int(call.x.shape[0]),
        shapes=call.shapes,
        grid=(1, ranks),
        element_bytes=call.x.element_size(),
        ordered=call.ordered,
        by_rows=call.by_rows,
    )
    if call.x.dim() != 2 or call.x.shape[1] * ranks != problem.columns:
        each, rest = divmod(problem.columns, ranks)
        of, what = ("columns", "rows") if call.left else ("rows", "columns")
        hint = f"K, {problem.columns}, is the product of the factors' {of}"
        if rest:
            expected = f"{call.told('M', f'K / {ranks}')}, with a K that {ranks} ranks divide"
        else:
            expected = f"{call.told('M', each)}, {problem.columns} {what} over {ranks} ranks"
        got = call.told(*call.x.shape)
        raise ArgumentError("shape of x", expected=expected, got=got, hint=hint)
    return problem


def outer_digits(call: Call, ranks: int, whole: Sequence[int] | None = None) -> int:
    """How many factors contract the digits that are whole on each rank, of an x that stayed split.

    Args:
        whole: the shape of all ranks' x, if the caller gave that.

    Raises:
        ArgumentError: x does not fit.
    """
    rows, at = 1, 0
    while rows < call.x.shape[1] and at < len(call.factors):
        rows, at = rows * call.shapes[at][0], at + 1
    inner = math.prod(p for p, _ in call.shapes[at:])
    fits = rows == call.x.shape[1] and 0 < at < len(call.factors)
    if not fits or call.x.shape[2] * ranks != inner:
        share = f"(M, A, B / {ranks})" if whole is None else f"(M, A, B), B over {ranks} ranks"
        expected = f"{share}, A the product of the first factors' rows, B of the others'"
        got = f"{tuple(whole or call.x.shape)} with factors of {[p for p, _ in call.shapes]} rows"
        hint = "flatten(1) of the whole gives the standard order"
        raise ArgumentError("x, split along its last digits", expected=expected, got=got, hint=hint)
    results = math.prod(q for _, q in call.shapes[:at])
    if results % ranks:
        expected, hint = f"a multiple of {ranks} ranks in all", "redistribute x, and flatten it"
        raise ArgumentError(
            "columns of the first factors", expected=expected, got=results, hint=hint
        )
    return at
