"""A network whose weights are chains of Kronecker-sparse factors, trained in JAX.

    pip install -e '.[jax]'
    python examples/jax_sparse_network.py

The data are what another network of that structure says, so that the loss can go to 0. It prints

    step   1: loss 0.7229
    step 100: loss 0.0461
    step 200: loss 0.0340
    step 300: loss 0.0306
    variance of the data 0.4033

where the variance is the loss of always answering with the mean.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import kronop.jax

WIDTH, ROWS, STEPS, RATE = 64, 256, 300, 0.02
PATTERNS = (8, 8, 8, 1), (1, 8, 8, 8)  # (a, b, c, d) of both factors: 1024 weights, not 4096.


def layer(key: Any) -> list[Any]:
    """Weights of a layer; with this scale its outputs are as large as its inputs."""
    keys = jax.random.split(key, len(PATTERNS))
    every = zip(keys, PATTERNS, strict=True)
    return [jax.random.normal(key, shape) / shape[2] ** 0.5 for key, shape in every]


def network(layers: list[list[Any]], x: Any) -> Any:
    first, second = layers
    return kronop.jax.ksmm(kronop.jax.ksmm(x, first, activation="tanh"), second)


@jax.jit
def step(layers: Any, moments: Any, count: Any, x: Any, y: Any) -> Any:
    """A step of Adam (Kingma and Ba 2015)."""
    loss, gradients = jax.value_and_grad(lambda w: ((network(w, x) - y) ** 2).mean())(layers)
    means, squares = moments
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
    squares = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, squares, gradients)

    def moved(weight: Any, mean: Any, square: Any) -> Any:
        mean, square = mean / (1 - 0.9**count), square / (1 - 0.99**count)
        return weight - RATE * mean / (jnp.sqrt(square) + 1e-8)

    return jax.tree.map(moved, layers, means, squares), (means, squares), loss


def main() -> None:
    keys = jax.random.split(jax.random.key(0), 5)
    x = jax.random.normal(keys[0], (ROWS, WIDTH))
    y = network([layer(keys[1]), layer(keys[2])], x)
    layers = [layer(keys[3]), layer(keys[4])]
    zeros = jax.tree.map(jnp.zeros_like, layers)
    moments = zeros, zeros
    for count in range(1, STEPS + 1):
        layers, moments, loss = step(layers, moments, float(count), x, y)
        if count == 1 or count % 100 == 0:
            print(f"step {count:3d}: loss {loss:.4f}")
    print(f"variance of the data {y.var():.4f}")


if __name__ == "__main__":
    main()
