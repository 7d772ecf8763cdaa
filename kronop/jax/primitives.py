"""JAX primitives of linear products: their shapes, and how XLA is told to run them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from kronop.jax.native import CALL
from kronop.jax.recording import Builder, record

Shape = Callable[..., tuple[tuple[int, ...], Any]]
"""(the shape, the dtype) of the result, for operands and the parameters of the primitive."""


def primitive(name: str, shape: Shape, build: Builder) -> Primitive:
    """A primitive of one result that kronop computes on CPUs and NVIDIA GPUs.

    Args:
        name: its name in jaxprs.
        shape: of its result; raises where operands don't fit.
        build: the arguments that compute it.
    """
    made = Primitive(name)

    def abstract(*operands: Any, **parameters: Any) -> Any:
        return jax.core.ShapedArray(*shape(*operands, **parameters))

    def eager(*operands: Any, **parameters: Any) -> Any:
        return _compiled(made, tuple(parameters.items()))(*operands)

    made.def_abstract_eval(abstract)
    made.def_impl(eager)
    for platform in ("cpu", "cuda"):
        call = functools.partial(_call, shape, build, platform)
        rule = mlir.lower_fun(call, multiple_results=False)
        mlir.register_lowering(made, rule, platform=platform)
    return made


@functools.lru_cache(maxsize=1024)
def _compiled(made: Primitive, parameters: tuple[tuple[str, Any], ...]) -> Any:
    """The primitive with these parameters as a compiled function; JAX keeps one per shape."""
    return jax.jit(functools.partial(made.bind, **dict(parameters)))


def _call(shape: Shape, build: Builder, platform: str, *operands: Any, **parameters: Any) -> Any:
    """XLA's custom call that computes the primitive; traced when a function is compiled."""
    result = jax.ShapeDtypeStruct(*shape(*operands, **parameters))
    if not result.size:
        return jnp.zeros(result.shape, result.dtype)
    key, scratch_bytes = record(build, operands, result, platform, **parameters)
    # XLA gives the scratch memory as one more result, which nobody reads.
    scratch = [jax.ShapeDtypeStruct((scratch_bytes,), np.uint8)] if scratch_bytes else []
    computed, *_ = jax.ffi.ffi_call(CALL, [result, *scratch])(*operands, program=np.int64(key))
    return computed
