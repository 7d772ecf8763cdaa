"""kermac's `run_kernel`, on plain tensors."""

from __future__ import annotations

from typing import Any

from kronop.errors import ArgumentError, mismatch
from kronop.families.distance.api import DIRECT, batch_dims, matrix_of
from kronop.families.distance.arguments import check_diagonal
from kronop.families.distance.descriptor import (
    Described,
    KernelDescriptor,
    PowerType,
    check_descriptor,
)
from kronop.families.distance.values import checked


def run_kernel(
    descriptor: KernelDescriptor,
    a: Any,
    b: Any,
    out: Any = None,
    p: Any = None,
    inner_p: Any = None,
    outer_p: Any = None,
    bandwidth: Any = None,
    epsilon: Any = None,
    regularization: Any = None,
    regularization_offset_x: int = 0,
    regularization_offset_y: int = 0,
) -> Any:
    """The kernel matrix of a descriptor, as kermac's function of that name.

    Other than there: any strides and element types, results have as many dimensions as operands,
    nothing waits for the GPU, and `regularization` is added to the diagonal's values instead of to
    1, which is the same for kernels that are 1 between equal points.

    Args:
        descriptor: what is computed.
        a: (..., M, K).
        b: (..., N, K); leading dimensions broadcast.
        out: (..., M, N), where to write the result; None for a new tensor.
        p: for POW inside and outside: the powers p and 1 / p, instead of the two next.
        inner_p, outer_p: the powers of POW.
        bandwidth: of LAPLACE and GAUSSIAN.
        epsilon: what is below it counts as 0 in LAPLACE and GAUSSIAN; None for 1e-5.
        regularization: added where m + regularization_offset_x = n + regularization_offset_y.

    Values are numbers, or tensors that broadcast with the leading dimensions of a and b: a tensor
    of shape (L,) beside two matrices gives a result (L, M, N).

    Returns:
        (..., M, N), of a's kind, element type and device.

    Raises:
        ArgumentError: shapes, devices or values that do not fit.
        ElementTypeError: no tensor, no descriptor, or element types that do not fit.
        DescriptionError, CompileError, DeviceError, OutOfMemoryError: as of `kernel_matrix`.

    Example:
        >>> euclidean = kronop.KernelDescriptor(
        ...     inner_operator=kronop.InnerOperator.DIFF,
        ...     inner_power=kronop.PowerType.SQUARE,
        ...     outer_power=kronop.PowerType.SQRT,
        ... )
        >>> x, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))
        >>> kronop.run_kernel(euclidean, x, y).tolist()
        [[0.0], [5.0]]
    """
    check_descriptor(descriptor)
    inner_p, outer_p = _powers(descriptor, p, inner_p, outer_p)
    kernel = Described(
        descriptor=descriptor,
        inner_p=inner_p,
        outer_p=outer_p,
        bandwidth=bandwidth,
        epsilon=epsilon,
    )
    offset = check_diagonal("regularization_offset_x", regularization_offset_x)
    offset -= check_diagonal("regularization_offset_y", regularization_offset_y)
    bound = kernel.bound(batch_dims(a, b), regularization)
    return matrix_of(a, b, bound, DIRECT, out, diagonal=offset)


def _powers(descriptor: KernelDescriptor, p: Any, inner_p: Any, outer_p: Any) -> tuple[Any, Any]:
    if p is None:
        return inner_p, outer_p
    both = descriptor.inner_power is descriptor.outer_power is PowerType.POW
    if not both or inner_p is not None or outer_p is not None:
        raise ArgumentError(
            mismatch(
                "p",
                expected="POW as inner and as outer power, and neither inner_p nor outer_p",
                got=f"{descriptor} with p",
                hint="pass inner_p or outer_p instead",
            )
        )
    return checked("p", p), None
