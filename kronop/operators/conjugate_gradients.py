"""Conjugate gradients for many right-hand sides at once, each with steps of its own."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from kronop.errors import ArgumentError, ElementTypeError, mismatch
from kronop.frozen import dataclass
from kronop.late import imported
from kronop.operators.frameworks import (
    as_tensor,
    batch_of,
    check_alike,
    check_decomposable,
    framework_of,
    is_torch,
)
from kronop.operators.operator import Operator, on_columns
from kronop.operators.systems import shifted_product
from kronop.tensors import Scale, Tensor

_Product = Callable[[Tensor], Tensor]
_INNER = ("kronop", "torch")

# Why iterations end before all residuals are small, and what to do.
_STOPPED = "allow more iterations, give a preconditioner or a larger rtol"
_NOT_DEFINITE = (
    "iterations ended at a direction of no positive curvature: the operator and the preconditioner"
    " are to be symmetric positive definite, by more than rounding; sigma2 adds to the eigenvalues"
)
_ROUNDED = (
    "iterations ended because the residual no longer falls, as far as rounding lets it: give a"
    " larger rtol, and see that the operator and the preconditioner are symmetric"
)
_NOT_FINITE = "b, or a product of the operator or the preconditioner, is not finite"
_OF_ROUNDING = (_NOT_DEFINITE, _ROUNDED)
_MOST = 1000
# After so many iterations `by_the_quicker` compares.
_TRIAL = 50


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CGInfo:
    """How conjugate gradients ended.

    Attributes:
        converged: for each right-hand side (...,) or (..., C), whether the residual b - M x, which
            is computed anew at the end, is small enough.
        residual_norms: the norms of these residuals.
        iterations: how many products were needed for the slowest right-hand side.

    Example:
        >>> x, info = kronop.cg(np.diag([1.0, 2.0]), np.ones(2))
        >>> info.iterations, bool(info.converged), float(info.residual_norms) < 1e-5
        (2, True, True)
    """

    converged: Tensor
    residual_norms: Tensor
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    rtol: float
    atol: float
    max_iterations: int

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not value >= 0:
                raise ArgumentError(
                    name, expected="0 or more", got=value, hint="the default is 1e-5 or 0"
                )
        if self.max_iterations < 1:
            got = self.max_iterations
            raise ArgumentError("max_iterations", expected="1 or more", got=got, hint="as 1000")


def cg(
    operator: object,
    b: Tensor,
    *,
    sigma2: Scale = 0.0,
    preconditioner: object = None,
    rtol: float = 1e-5,
    atol: float = 0.0,
    max_iterations: int = _MOST,
) -> tuple[Tensor, CGInfo]:
    """Solves (operator + sigma2 I) x = b by conjugate gradients, for a symmetric positive definite
    left side (Hestenes and Stiefel 1952).

    Whoever solves exactly has no need of it: `operator.solve` of a KroneckerOperator or a
    KroneckerSum. A right-hand side that does not converge raises a RuntimeWarning, and x is the
    last iterate.

    Args:
        operator: one of kronop's operators, a matrix, anything else with `@`, or a function of
            columns (..., N, C).
        b: (N,) or (..., N, C) of NumPy, torch or CuPy: right-hand sides as columns.
        sigma2: a number, or a tensor that broadcasts with the leading dimensions.
        preconditioner: what approximates the inverse, symmetric positive definite: as `operator`.
            A MaskedOperator has one of its own: solutions with the whole grid. Its iterations at
            the missing points are not counted, so that there are one or two.
        rtol, atol: the norm of a residual is to be at most max(rtol * norm of b, atol).
        max_iterations: how many products to make at most, but for those that check the end.

    Returns:
        (x, info), x like b (broadcast with the operator's leading dimensions), and how it ended.
        Of torch tensors x has gradients in b, sigma2, and the factors of an operator of kronop or
        the elements of a matrix, to any order; each is found by conjugate gradients as well.

    Raises:
        ArgumentError: shapes or frameworks do not fit, also those of products, a limit is negative,
            or a function's result requires a gradient, which could not reach what the function is
            made of: operators of kronop, such as MaskedOperator, have gradients.
        ElementTypeError: the operator can't be multiplied, or products are of another type.

    Example:
        >>> A, B = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([1.0, 2.0, 4.0])
        >>> K, b = kronop.KroneckerOperator([A, B]), np.arange(6.0)
        >>> x, info = kronop.cg(K, b, sigma2=0.1, rtol=1e-10)
        >>> bool(info.converged), bool(np.allclose(K @ x + 0.1 * x, b))
        (True, True)
    """
    limits = _Limits(rtol=rtol, atol=atol, max_iterations=max_iterations)
    if isinstance(operator, Operator):
        operator.check_square("cg")
        check_alike(b, "b", operator.tensors[0], "the operator")
    framework = framework_of(b, "b")
    check_decomposable(b, "b")
    system = _System(operator, as_tensor(sigma2, b, "sigma2"), preconditioner, limits)

    def solution(columns: Tensor) -> Tensor:
        if not is_torch(framework):
            return system.solve(columns, system.tensors)
        imported("kronop.torch.implicit")
        from kronop.torch.implicit import solution

        system.check_gradients(columns)
        return solution(system, columns, system.tensors)

    x = on_columns(solution, b)
    info = system.ended[0]
    if len(b.shape) == 1:
        converged, norms = info.converged[..., 0], info.residual_norms[..., 0]
        info = dataclasses.replace(info, converged=converged, residual_norms=norms)
    return x, info


def by_the_quicker(
    product: _Product,
    preconditioners: Sequence[_Product],
    b: Tensor,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    warns: bool = False,
) -> Tensor:
    """The values of `cg`'s last iterate for columns b, without a preconditioner or by one of these,
    whichever is ahead after some iterations of each. If it `warns`, then as `cg` does."""
    norms = framework_of(b, "b").where(norms_of(b) > 0, norms_of(b), 1)

    def system(preconditioner: _Product | None, most: int) -> _System:
        limits = _Limits(rtol=rtol, atol=atol, max_iterations=most)
        return _System(product, as_tensor(0, b, "sigma2"), preconditioner, limits)

    residuals = []
    for preconditioner in (None, *preconditioners):
        trial = system(preconditioner, _TRIAL)
        x, info, _ = trial.attempt(b, trial.tensors)
        if info.converged.all():
            return x
        residuals.append(float((info.residual_norms / norms).max()))
    best = system((None, *preconditioners)[residuals.index(min(residuals))], _MOST)
    return best.solve(b, best.tensors) if warns else best.attempt(b, best.tensors)[0]


class _System:
    """The left side, for `kronop.torch.implicit`. `ended` has how each of its solutions ended."""

    def __init__(
        self, operator: object, sigma2: Tensor, preconditioner: object, limits: _Limits
    ) -> None:
        self._operator, self._limits = operator, limits
        framework = framework_of(sigma2, "sigma2")
        own: Sequence[Tensor] = ()
        if isinstance(operator, Operator):
            own = operator.tensors
        elif is_torch(framework) and isinstance(operator, framework.Tensor):
            own = (operator,)
        self.tensors = (*own, sigma2)
        self._preconditioner = preconditioner
        self.ended: list[CGInfo] = []

    def multiply(self, x: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        operator, sigma2 = self._operator, tensors[-1]
        if isinstance(operator, Operator):
            operator = operator.like(tensors[:-1])
        elif len(tensors) > 1:
            operator = tensors[0]
        return shifted_product(_Checked(operator, "the operator"), sigma2, x)

    def solve(self, b: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        x, info, stop = self.attempt(b, tensors)
        _warn(info, self._limits, stop, b.dtype)
        self.ended.append(info)
        return x

    def attempt(self, b: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, CGInfo, str]:
        """The last iterate, how it ended, and why it did if that is no solution."""
        lead = batch_of(getattr(self._operator, "shape", ())[:-2], tensors[-1].shape, b.shape[:-2])
        b = framework_of(b, "b").broadcast_to(b, (*lead, *b.shape[-2:]))
        # Columns are about 1 while they are worked on: squares of norms would under- or overflow.
        scale = _scale(b)
        x, info, stop = _iterate(
            lambda p: self.multiply(p, tensors),
            self._precondition(tensors),
            b / scale,
            self._limits,
            scale,
        )
        norms = info.residual_norms * scale[..., 0, :]
        return x * scale, dataclasses.replace(info, residual_norms=norms), stop

    def _precondition(self, tensors: Sequence[Tensor]) -> _Product:
        given = self._preconditioner
        if given is None and isinstance(self._operator, Operator):
            # Of the tensors' own operator: under a transform these are not those it was made of.
            operator = self._operator.of(tensors[:-1])
            given = operator.preconditioner(tensors[-1], self._limits.rtol)
        return (lambda r: r) if given is None else _Checked(given, "the preconditioner").__matmul__

    def check_gradients(self, columns: Tensor) -> None:
        """Refuses a function, or another framework's operator, that torch is to differentiate."""
        if len(self.tensors) > 1:
            return
        if (_Checked(self._operator, "the operator") @ columns.detach()).requires_grad:
            raise ArgumentError(
                "the operator",
                expected="one of kronop's, or a matrix, where a gradient is asked for",
                got=type(self._operator).__name__,
                hint="what it multiplies by may be an operator of kronop: MaskedOperator of a"
                " grid with missing points, a sum or multiple of others; without gradients work"
                " under torch.no_grad()",
            )


class _Checked:
    """Anything that multiplies columns, whose products are seen to be columns of the same kind."""

    def __init__(self, operator: object, name: str) -> None:
        self._name, self._product = name, _product_of(operator, name)
        self._shape = tuple(getattr(operator, "shape", ()))

    def __matmul__(self, x: Tensor) -> Tensor:
        order = x.shape[-2]
        if self._shape and self._shape[-1] != order:
            raise ArgumentError(
                f"shape of {self._name}",
                expected=f"(..., {order}, {order}) beside b of {order} rows",
                got=self._shape,
                hint="it multiplies columns (..., N, C), of which b has one for each solution",
            )
        found, name = self._product(x), f"a product of {self._name}"
        check_alike(found, name, x, "b")
        if tuple(found.shape[-2:]) != tuple(x.shape[-2:]):
            raise ArgumentError(
                f"shape of {name}",
                expected=f"(..., {x.shape[-2]}, {x.shape[-1]}), that of the columns",
                got=tuple(found.shape),
                hint="it takes and gives columns (..., N, C), also of a single vector",
            )
        return found


def _product_of(operator: Any, name: str) -> _Product:
    """The function x -> operator @ x."""
    if hasattr(operator, "__matmul__"):
        return lambda x: operator @ x
    if callable(operator):
        return operator  # type: ignore[no-any-return]
    raise ElementTypeError(
        name,
        expected="an operator with @, a matrix, or a function of columns",
        got=type(operator).__name__,
        hint="for example kronop.KroneckerOperator(factors)",
    )


def _scale(b: Tensor) -> Tensor:
    """The largest absolute value of each column (..., 1, C), and 1 where that is of no use."""
    xp = framework_of(b, "b")
    if not b.shape[-2]:
        return xp.ones_like(b.sum(-2))[..., None, :]
    largest = xp.amax(abs(b), -2)[..., None, :]
    return xp.where((largest > 0) & xp.isfinite(largest), largest, 1)


def _iterate(
    multiply: _Product, precondition: _Product, b: Tensor, limits: _Limits, scale: Tensor
) -> tuple[Tensor, CGInfo, str]:
    """(x, info, why the first that failed did) of columns b (..., N, C), which were divided by
    `scale` (..., 1, C)."""
    xp = framework_of(b, "b")
    least = limits.atol / scale[..., 0, :]
    bound = xp.maximum(limits.rtol * norms_of(b), least)
    x, residual = b * 0, b
    direction = z = precondition(residual)
    rho, checked = _dots(residual, z), norms_of(b)
    active, usable, iterations = norms_of(b) > bound, bound == bound, 0
    while iterations < limits.max_iterations and bool(active.any()):
        product = multiply(direction)
        curvature = _dots(direction, product)
        # A direction without positive curvature shows that a matrix is not positive definite.
        usable = usable & ~(active & ~((curvature > 0) & (rho > 0)))
        active = active & usable
        step = xp.where(active, rho / xp.where(active, curvature, 1), 0)[..., None, :]
        x, residual = x + step * direction, residual - step * product
        iterations += 1
        active = active & (norms_of(residual) > bound)
        restart = not bool(active.any())
        if restart:
            # The residual that was updated is not the real one. Where that is larger, and still
            # shrinks, begin again.
            residual = b - multiply(x)
            norms = norms_of(residual)
            active, checked = usable & (norms > bound) & (norms < checked / 2), norms
            if not bool(active.any()):
                break
        z = precondition(residual)
        new = _dots(residual, z)
        turn = xp.where(active, new / xp.where(active, rho, 1), 0)[..., None, :]
        direction, rho = z if restart else z + turn * direction, new
    norms = norms_of(b - multiply(x))
    converged = xp.isfinite(norms) & (norms <= bound)
    info = CGInfo(converged=converged, residual_norms=norms, iterations=iterations)
    if bool((~converged & ~xp.isfinite(norms)).any()):
        return x, info, _NOT_FINITE
    if not bool(usable.all()):
        return x, info, _NOT_DEFINITE
    return x, info, _STOPPED if bool(active.any()) else _ROUNDED


def _dots(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-2)


def norms_of(a: Tensor) -> Tensor:
    return _dots(a, a) ** 0.5


def _warn(info: CGInfo, limits: _Limits, stop: str, element: Tensor) -> None:
    if bool(info.converged.all()):
        return
    failed, count = int((~info.converged).sum()), info.converged.reshape(-1).shape[0]
    worst = float(info.residual_norms.max())
    finer = "; use float64" if "float32" in str(element) and stop in _OF_ROUNDING else ""
    warnings.warn(
        mismatch(
            "kronop.cg",
            expected=f"all residuals below rtol={limits.rtol:g} of b, or atol={limits.atol:g}",
            got=f"{failed} of {count} that are not, the largest {worst:.2g}, after "
            f"{info.iterations} of at most {limits.max_iterations} iterations",
            hint=stop + finer,
        ),
        RuntimeWarning,
        stacklevel=levels_to_caller(),
    )


def levels_to_caller() -> int:
    """The stacklevel, for the function that calls this one, of the first line that is neither
    kronop's nor torch's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _INNER:
        level, frame = level + 1, frame.f_back
    return level
