"""warmup: compiles everything that calls will need, before they are made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from kronop.core.gathering import Serving, compile_all, gathering
from kronop.core.operation import AnyOperation, Operation
from kronop.emit.plan import Plan
from kronop.errors import ElementTypeError, KronopError
from kronop.late import Later

# Makes the calls of `work`, and those of its backward. It needs torch, which is loaded if the work
# is torch's.
_TORCH_STEP = Later("kronop.torch.warming", "step")


def warmup(work: object, *examples: object, **named: object) -> int:
    """Compiles all kernels that `work` needs, as many at once as there are CPUs, and loads them.

    The first call of every combination of sizes, type and layout compiles a kernel, for about a
    second; a training step makes many such calls. A warm-up of the whole step makes none of them
    wait for another::

        kronop.warmup(model, torch.randn(32, 784))  # forward and backward of a torch module
        kronop.warmup(lambda: loss_of(model(x), target))
        kronop.warmup(kronop.gemkm, x, factors)
        kronop.warmup([operation, other])

    A module or function is called once, with kronop's kernels left out: their results are memory as
    it was found. Backward is gone through where a result requires a gradient (under `torch.no_grad`
    none does), with nothing added to `grad`. Afterwards torch's random numbers are as before, and
    so are the buffers of the modules that were called, and `grad` of their parameters and of the
    examples. Other effects happen, so leave them out: an optimizer's step, hooks of tensors and
    modules, a function's own `backward` for tensors that are neither, statistics of lazy modules
    (call these once before) and of modules within a function that torch compiles. Checkpoints have
    to be `use_reentrant=False`.

    Args:
        work: an operation or a list of operations (their plan for many rows); a torch module; or a
            function that makes the calls.
        examples, named: what a module or function is called with: tensors of the shapes, types,
            layouts and devices that it will be called with.

    Returns:
        The number of kernels that were compiled; those that the cache had are not counted.

    Raises:
        ElementTypeError: `work` is none of these.
        CompileError: a compiler is missing or refused a source.
        DeviceError: a kernel does not load on this machine; `compiler.add_module` only compiles.
        Exception: what a module or function raised, by itself or because of meaningless values.

    Example:
        >>> x, factors = np.ones((4, 64), np.float32), [np.eye(8, dtype=np.float32)] * 2
        >>> compiled = kronop.warmup(kronop.gemkm, x, factors)  # 0 where the cache has the kernel
        >>> kronop.warmup(kronop.gemkm, x, factors)
        0
        >>> kronop.gemkm(x, factors).shape  # compiles nothing
        (4, 64)
    """
    operations = _operations(work)
    if operations is None:
        noted = _noted(work, examples, named)
    elif examples or named:
        raise ElementTypeError(
            "examples",
            expected="none beside operations",
            got=f"{len(examples) + len(named)}",
            hint="an operation is compiled for many rows; pass a function for other sizes",
        )
    else:
        noted = [(operation, operation.plan) for operation in operations]
    found = compile_all(plan for _, plan in noted)
    for operation, plan in noted:
        operation.serve(plan)
    return found


def _noted(
    work: object, examples: Sequence[object], named: dict[str, object]
) -> list[tuple[Serving, Plan]]:
    """The operations that a call of `work` runs, and their plans."""
    if not callable(work):
        raise ElementTypeError(
            "work",
            expected="an operation, a list of operations, a torch module or a function",
            got=type(work).__name__,
            hint="wrap what needs kernels in a function: kronop.warmup(lambda: ...)",
        )
    with gathering() as noted:
        _call(work, examples, named)
    return noted


def _operations(work: object) -> Sequence[AnyOperation] | None:
    """The operations that `work` is, or None."""
    items = list(work) if isinstance(work, (list, tuple)) else [work]
    found = [item for item in items if isinstance(item, Operation)]
    return found if items and len(found) == len(items) else None


def _call(
    work: Callable[..., object], examples: Sequence[object], named: dict[str, object]
) -> None:
    try:
        if "torch" in sys.modules:
            _TORCH_STEP.get()(work, examples, named)
        else:
            work(*examples, **named)
    except KronopError:  # These speak of the arguments, not of values.
        raise
    except Exception as error:
        error.add_note(
            "kronop.warmup leaves kronop's kernels out, so that their results are meaningless: if"
            " this error is about values, pass a function that ends before they are looked at"
        )
        raise
