"""Who constructs linear_operator's classes gets kronop's, in a block or for the rest of a program.

The classes themselves are asked: their `__new__` makes an instance of kronop's subclass. So it does
not matter by which name a module knows a class, and isinstance of linear_operator's class holds for
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)

# Of this thread (or task): others are not changed by a block.
_in_block: ContextVar[bool] = ContextVar("kronop_linear_operator", default=False)
_in_program = False
_substitutes: dict[type, type] = {}


@contextmanager
def accelerated() -> Iterator[None]:
    """A block (or a decorated function) in which whatever constructs a Kronecker product of
    linear_operator, also a triangular one or one with an added diagonal, gets kronop's subclass.

    GPyTorch's MultitaskKernel, LCMKernel, GridKernel and GridInterpolationKernel do. Other threads
    are not changed.

    Blocks may be nested. Operators that were made inside a block stay kronop's outside.

    Example:
        >>> import torch
        >>> import kronop.linear_operator
        >>> from linear_operator.operators import KroneckerProductLinearOperator
        >>> with kronop.linear_operator.accelerated():
        ...     K = KroneckerProductLinearOperator(torch.eye(2), torch.eye(3))
        >>> isinstance(K, kronop.linear_operator.KroneckerProductLinearOperator)
        True
    """
    token = _in_block.set(True)
    try:
        yield
    finally:
        _in_block.reset(token)


def accelerate(on: bool = True) -> None:
    """Does as an `accelerated` block, from now on and in all threads.

    Args:
        on: False ends it.

    Example:
        >>> import torch
        >>> import kronop.linear_operator
        >>> from linear_operator.operators import KroneckerProductLinearOperator
        >>> kronop.linear_operator.accelerate()
        >>> K = KroneckerProductLinearOperator(torch.eye(2), torch.eye(3))
        >>> kronop.linear_operator.accelerate(False)
        >>> isinstance(K, kronop.linear_operator.KroneckerProductLinearOperator)
        True
    """
    global _in_program
    _in_program = on


def is_on() -> bool:
    """Whether linear_operator's classes are substituted now."""
    return _in_program or _in_block.get()


def substitutes(parent: type) -> Callable[[_Class], _Class]:
    """Declares a class as what stands for its parent class in `accelerated` blocks."""

    def declare(own: _Class) -> _Class:
        _substitutes[parent] = own
        # NOTE: it stays, because a class whose `__new__` was deleted again refuses arguments
        # (CPython 3.11). Outside of blocks it does what object's does.
        parent.__new__ = _new  # type: ignore[method-assign, assignment]
        return own

    return declare


def _new(cls: type, *arguments: object, **options: object) -> object:
    return object.__new__(_substitutes.get(cls, cls) if is_on() else cls)
