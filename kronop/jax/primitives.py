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
from jax.sharding import NamedSharding, PartitionSpec

from kronop.descriptions.datatype import result_type
from kronop.jax.native import CALL
from kronop.jax.recording import Builder, element_of, record

Shape = Callable[..., tuple[int, ...]]
"""The shape of the result, for operands and the parameters of the primitive."""


def primitive(name: str, shape: Shape, build: Builder) -> Primitive:
    """A primitive of one result that kronop computes on CPUs and NVIDIA GPUs.

    Args:
        name: its name in jaxprs.
        shape: of its result; raises where operands don't fit.
        build: the arguments that compute it.
    """
    made = _Product(name)

    def abstract(*operands: jax.core.ShapedArray, **parameters: object) -> jax.core.ShapedArray:
        return _like(operands[0], shape(*operands, **parameters), _dtype(operands[0]))

    def eager(*operands: jax.Array, **parameters: object) -> jax.Array:
        compiled = _compiled(made, tuple(parameters.items()))
        if not jax.config.jax_disable_jit:
            return compiled(*operands)
        with jax.disable_jit(False):  # Else this would call itself: only XLA knows the kernels.
            return compiled(*operands)

    made.def_abstract_eval(abstract)
    made.def_impl(eager)
    for platform in ("cpu", "cuda"):
        call = functools.partial(_call, shape, build, platform)
        rule = mlir.lower_fun(call, multiple_results=False)
        mlir.register_lowering(made, rule, platform=platform)
    return made


_NONE: frozenset[str] = frozenset()


class _Product(Primitive):  # type: ignore[misc]  # JAX is Any to mypy.
    """A primitive whose operands all vary along the same axes of a mesh within `jax.shard_map`."""

    def bind(self, *operands: jax.Array, **parameters: object) -> jax.Array:
        # As JAX's own functions do: an operand that is the same on all devices becomes one that may
        # differ, whose gradient is the sum of those of all devices.
        axes = [_varying(item) for item in operands]
        every = _NONE.union(*axes)
        if every:
            pairs = zip(operands, axes, strict=True)
            operands = tuple(_vary(item, every - own) for item, own in pairs)
        return super().bind(*operands, **parameters)


def _varying(item: jax.Array) -> frozenset[str]:
    """The axes of a mesh along which the array varies; JAX 0.10 renamed the attribute."""
    if not isinstance(item, jax.core.Tracer):
        return _NONE
    aval = jax.typeof(item)
    renamed = getattr(aval, "manual_axis_type", None)
    axes: frozenset[str] = aval.vma if renamed is None else renamed.varying
    return axes


def _vary(item: jax.Array, axes: frozenset[str]) -> jax.Array:
    if not axes:
        return item
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(item, tuple(axes), to="varying")
    return jax.lax.pvary(item, tuple(axes))  # Its name before JAX 0.8.2.


def _dtype(operand: jax.Array | jax.core.ShapedArray) -> jnp.dtype:
    """The dtype of products of such an operand."""
    element = result_type(element_of("x", operand.dtype))
    return operand.dtype if element.name == operand.dtype.name else np.dtype(element.name)


def _like(
    operand: jax.core.ShapedArray, shape: tuple[int, ...], dtype: jnp.dtype
) -> jax.core.ShapedArray:
    """The abstract value of a result that varies along the same axes as the operand."""
    whole = NamedSharding(operand.sharding.mesh, PartitionSpec(*(None for _ in shape)))
    return operand.update(shape=shape, dtype=dtype, weak_type=False, sharding=whole)


@functools.lru_cache(maxsize=1024)
def _compiled(made: Primitive, parameters: tuple[tuple[str, object], ...]) -> Any:
    """The primitive with these parameters as a compiled function; JAX keeps one per shape."""
    return jax.jit(functools.partial(made.bind, **dict(parameters)))


def _call(
    shape: Shape, build: Builder, platform: str, *operands: jax.Array, **parameters: object
) -> jax.Array:
    """XLA's custom call that computes the primitive; traced when a function is compiled."""
    result = jax.ShapeDtypeStruct(shape(*operands, **parameters), _dtype(operands[0]))
    if not result.size:
        return jnp.zeros(result.shape, result.dtype)
    key, scratch_bytes = record(build, operands, result, platform, **parameters)
    # XLA gives the scratch memory as one more result, which nobody reads.
    scratch = [jax.ShapeDtypeStruct((scratch_bytes,), np.uint8)] if scratch_bytes else []
    computed, *_ = jax.ffi.ffi_call(CALL, [result, *scratch])(*operands, program=np.int64(key))
    return computed
