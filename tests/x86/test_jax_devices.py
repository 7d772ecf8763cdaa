"""kronop.jax within jax.shard_map over two devices, which this machine's CPU stands in for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")

# The number of devices is read once, so that another process has two of them.
_SCRIPT = """
import functools
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, PartitionSpec as P
import kronop.jax as kj

mesh = jax.make_mesh((2,), ("rows",), axis_types=(AxisType.Auto,))
shard_map = functools.partial(jax.shard_map, mesh=mesh)
rows, whole = P("rows"), P()
rng = np.random.default_rng(5)
# All results are integers below 2^24, which float32 holds exactly.
x, a, b = (jnp.asarray(rng.integers(-2, 3, s), jnp.float32) for s in ((4, 4), (2, 2), (2, 2)))


def dense(x, factors):
    return x @ jnp.kron(*factors)


def squares(product, *given):
    return (product(*given) ** 2).sum()


def everywhere(*given):
    return jax.lax.psum(squares(kj.gemkm, *given), "rows")


def of_second(product, x, factors, ct):
    "The gradient of one factor, in which alone the product is linear."
    first, second = factors
    return jax.linear_transpose(lambda item: product(x, [first, item]), second)(ct)[0]


def within(x, factors, ct):
    cast = getattr(jax.lax, "pcast", None)
    second = cast(factors[1], "rows", to="varying") if cast else jax.lax.pvary(factors[1], "rows")
    return jax.lax.psum(of_second(kj.gemkm, x, [factors[0], second], ct), "rows")


@jax.jit
def found(x, factors, firsts, weight):
    one = lambda x, first: kj.gemkm(x, [first[0], factors[1]])[None]
    made = shard_map(kj.gemkm, in_specs=(rows, whole), out_specs=rows)(x, factors)
    inner = shard_map(
        jax.grad(everywhere, (0, 1)), in_specs=(rows, whole), out_specs=(rows, whole)
    )
    outer = jax.grad(shard_map(everywhere, in_specs=(rows, whole), out_specs=whole), (0, 1))
    of_one = shard_map(within, in_specs=(rows, whole, rows), out_specs=whole)
    return (
        made,
        shard_map(one, in_specs=(whole, rows), out_specs=rows)(x, firsts),
        inner(x, factors),
        outer(x, factors),
        of_one(x, factors, made),
        shard_map(kj.ksmm, in_specs=(rows, whole), out_specs=rows)(x, weight),
    )


made = dense(x, [a, b])
gradients = jax.grad(squares, (1, 2))(dense, x, [a, b])
expected = (
    made,
    jnp.stack([made, -made]),
    gradients,
    gradients,
    of_second(dense, x, [a, b], made),
    x @ jnp.kron(jnp.eye(2), a).T,
)
weight = jnp.stack([a, a])[..., None]  # Two blocks a on the diagonal.
jax.tree.map(
    np.testing.assert_array_equal, found(x, [a, b], jnp.stack([a, -a]), weight), expected
)
print("all the same")
"""


def test_products_and_gradients_say_along_which_axes_they_vary() -> None:
    flags = "--xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all the same\n"
