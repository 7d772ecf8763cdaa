"""What operators keep of what they computed: decompositions, as long as factors stay as they are.

NumPy's arrays do not count their changes, and torch's count misses those that go through memory
that is shared. So factors are compared with copies, element by element: against a decomposition
that takes no time, and no change is missed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from kronop.late import imported
from kronop.operators.frameworks import copied, framework_of, is_torch, without_gradient
from kronop.operators.operator import Operator
from kronop.tensors import Tensor

_Found = TypeVar("_Found")


def kept(
    operator: Operator, name: str, tensors: Sequence[Tensor], make: Callable[[], _Found]
) -> _Found:
    """What `make` computes of the tensors' values: made once, and again where one has changed.

    Of torch tensors only what nothing records is kept: where gradients, tangents or a transform
    need the computation itself, `make` is called.
    """
    if not _are_constant(tensors):
        return make()
    if (known := recalled(operator, name, tensors)) is not None:
        return cast("_Found", known)
    with constant(tensors):
        copies = [copied(without_gradient(item)) for item in tensors]
        found = make()
    operator.memory[name] = copies, found
    return found


def recalled(operator: Operator, name: str, tensors: Sequence[Tensor]) -> Any:
    """What was kept under this name, or None."""
    copies, found = operator.memory.get(name, ((), None))
    if found is None or not _are_constant(tensors):
        return None
    return found if all(map(_is_same, copies, tensors)) else None


def _is_same(copy: Tensor, tensor: Tensor) -> bool:
    xp = framework_of(copy, "a factor")
    return bool(xp.equal(copy, tensor) if is_torch(xp) else xp.array_equal(copy, tensor))


def _are_constant(tensors: Sequence[Tensor]) -> bool:
    if not is_torch(framework_of(tensors[0], "a factor")):
        return True
    imported("kronop.torch.implicit")
    from kronop.torch.implicit import are_constant

    return are_constant(tensors)


def constant(tensors: Sequence[Tensor]) -> contextlib.AbstractContextManager[object]:
    """In this block torch makes tensors that any later computation may use."""
    if not is_torch(framework_of(tensors[0], "a factor")):
        return contextlib.nullcontext()
    imported("kronop.torch.implicit")
    from kronop.torch.implicit import unrecorded

    return unrecorded()
