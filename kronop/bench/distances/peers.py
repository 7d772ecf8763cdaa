"""Other libraries that compute distances and Gaussian kernels of all pairs."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kronop.bench.arrays import Arrays
from kronop.bench.protocol import Call
from kronop.bench.timing import PeerUnavailableError, need
from kronop.tensors import Tensor

NAMES = ("torch", "scipy", "sklearn", "kermac", "keops")
# Rows of the matrix that torch makes at once, for a product with columns.
_CHUNK = 10000
_METRICS = {1.0: "cityblock", 2.0: "euclidean", math.inf: "chebyshev"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of a library.

    Attributes:
        p: a norm, or None for the Gaussian kernel of this `bandwidth`. With neither, it is a kernel
            that no other library computes in one call.
        expanded: squared distances may be matrix products.
    """

    p: float | None
    bandwidth: float | None
    dtype: str
    expanded: bool

    @property
    def gamma(self) -> float:
        """What squared distances are multiplied by, in a Gaussian kernel.

        Raises:
            PeerUnavailableError: it is another kernel.
        """
        if self.bandwidth is None:
            raise PeerUnavailableError("it is asked for norms and Gaussian kernels alone")
        return 1 / (2 * self.bandwidth**2)


def call_of(name: str, asked: Asked, arrays: Arrays, x1: Tensor, x2: Tensor) -> Call:
    """A call that returns the matrix of all pairs.

    Raises:
        PeerUnavailableError: the library is missing, or can't compute this.
    """
    if name not in _MATRICES:
        raise PeerUnavailableError("it never forms the matrix")
    return _MATRICES[name](asked, arrays, x1, x2)


def product_of(name: str, asked: Asked, arrays: Arrays, x1: Tensor, x2: Tensor, v: Tensor) -> Call:
    """A call that returns the matrix of all pairs times v.

    Raises:
        PeerUnavailableError: the library is missing, or can't compute this.
    """
    if name == "keops":
        return _keops(asked, arrays, x1, x2, v)
    if name != "torch":
        raise PeerUnavailableError("it has no such product")
    starts = range(0, x1.shape[0], _CHUNK)
    rows = [_torch(asked, arrays, x1[at : at + _CHUNK], x2) for at in starts]
    import torch

    return lambda: torch.cat([some() @ v for some in rows])


def _torch(asked: Asked, arrays: Arrays, x1: Tensor, x2: Tensor) -> Call:
    if arrays.framework != "torch":
        raise PeerUnavailableError("not installed")
    import torch

    mode = f"{'' if asked.expanded else 'donot_'}use_mm_for_euclid_dist"
    if asked.p is not None:
        return functools.partial(torch.cdist, x1, x2, p=asked.p, compute_mode=mode)
    gamma = asked.gamma
    return lambda: torch.cdist(x1, x2, compute_mode=mode).square_().mul_(-gamma).exp_()


def _scipy(asked: Asked, arrays: Arrays, x1: Tensor, x2: Tensor) -> Call:
    _need_cpu(arrays)
    need("scipy")
    cdist = importlib.import_module("scipy.spatial.distance").cdist
    a, b = _numpy(x1), _numpy(x2)
    if asked.p is None:
        gamma = asked.gamma
        return lambda: np.exp(-gamma * cdist(a, b, "sqeuclidean"))
    if asked.p == 0:
        raise PeerUnavailableError("it has no norm of p = 0")
    if asked.p in _METRICS:
        return functools.partial(cdist, a, b, _METRICS[asked.p])
    return functools.partial(cdist, a, b, "minkowski", p=asked.p)


def _sklearn(asked: Asked, arrays: Arrays, x1: Tensor, x2: Tensor) -> Call:
    _need_cpu(arrays)
    need("sklearn")
    pairwise = importlib.import_module("sklearn.metrics.pairwise")
    a, b = _numpy(x1), _numpy(x2)
    if asked.p is None:
        return functools.partial(pairwise.rbf_kernel, a, b, gamma=asked.gamma)
    if asked.p == 1:
        return functools.partial(pairwise.manhattan_distances, a, b)
    if asked.p == 2 and asked.expanded:
        return functools.partial(pairwise.euclidean_distances, a, b)
    raise PeerUnavailableError("it asks SciPy for this norm")


def _kermac(asked: Asked, arrays: Arrays, x1: Tensor, x2: Tensor) -> Call:
    if arrays.device != "cuda":
        raise PeerUnavailableError("it is for GPUs")
    need("kermac")
    if asked.dtype != "float32":
        raise PeerUnavailableError(f"it has no {asked.dtype} kernels")
    if asked.p in (0, math.inf):
        raise PeerUnavailableError(f"it has no norm of p = {asked.p:g}")
    kermac = importlib.import_module("kermac")
    out = arrays.poisoned((x1.shape[0], x2.shape[0]), asked.dtype)
    if asked.p is not None:
        return functools.partial(kermac.cdist, x1, x2, out=out, p=asked.p)
    width = 1 / math.sqrt(2 * asked.gamma)
    gaussian = kermac.KernelDescriptor(
        inner_operator=kermac.InnerOperator.DIFF,
        inner_power=kermac.PowerType.SQUARE,
        outer_power=kermac.PowerType.NOOP,
        kernel_type=kermac.KernelType.GAUSSIAN,
    )
    return functools.partial(kermac.run_kernel, gaussian, x1, x2, out=out, bandwidth=width)


def _keops(asked: Asked, arrays: Arrays, x1: Tensor, x2: Tensor, v: Tensor) -> Call:
    gamma = asked.gamma
    need("pykeops")
    keops = importlib.import_module(f"pykeops.{arrays.framework}")
    kernel = (keops.Vi(x1).sqdist(keops.Vj(x2)) * -gamma).exp()
    return lambda: kernel @ v


def _need_cpu(arrays: Arrays) -> None:
    if arrays.device != "cpu":
        raise PeerUnavailableError("it is for CPUs")


def _numpy(value: Tensor) -> Tensor:
    """The tensor as a NumPy array of the same memory.

    Raises:
        PeerUnavailableError: NumPy has no such type.
    """
    try:
        return np.asarray(value)
    except TypeError as error:
        raise PeerUnavailableError("NumPy has no such type") from error


_MATRICES: dict[str, Callable[[Asked, Arrays, Tensor, Tensor], Call]] = {
    "torch": _torch,
    "scipy": _scipy,
    "sklearn": _sklearn,
    "kermac": _kermac,
}
