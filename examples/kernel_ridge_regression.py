"""Kernel ridge regression on a CPU: the bandwidth by leave-one-out errors, then predictions with
the standard deviations of a Gaussian process.

    python examples/kernel_ridge_regression.py
"""

from __future__ import annotations

import numpy as np

import kronop

NOISE = 0.1


def target(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x[:, 0]) + 0.5 * np.cos(5 * x[:, 1]) * x[:, 2]


def leave_one_out(x: np.ndarray, y: np.ndarray, bandwidths: np.ndarray) -> np.ndarray:
    """The root mean square error at each point of a fit to all others, for each bandwidth."""
    # x has a leading dimension, with which the bandwidths broadcast: one matrix for each of them.
    kernel = kronop.kernels.Gaussian(bandwidths)
    inverses = np.linalg.inv(kronop.kernel_matrix(x[None], x[None], kernel, NOISE**2))
    # The residual of a point that is left out is its weight over its diagonal element
    # (Rasmussen and Williams, Gaussian Processes for Machine Learning, equation 5.12).
    residuals = (inverses @ y) / np.diagonal(inverses, axis1=-2, axis2=-1)
    return np.sqrt((residuals**2).mean(-1))


def main() -> None:
    rng = np.random.default_rng(0)
    x, new = rng.uniform(-1, 1, (400, 3)), rng.uniform(-1, 1, (2000, 3))
    y = target(x) + NOISE * rng.standard_normal(len(x))

    bandwidths = np.geomspace(0.1, 3.0, 8)
    errors = leave_one_out(x, y, bandwidths)
    best = bandwidths[errors.argmin()]
    for bandwidth, error in zip(bandwidths, errors, strict=True):
        mark = " *" if bandwidth == best else ""
        print(f"bandwidth {bandwidth:5.2f}: error {error:.3f}{mark}")

    kernel = kronop.kernels.Gaussian(best)
    fitted = kronop.kernel_matrix(x, x, kernel, NOISE**2)
    between = kronop.kernel_matrix(new, x, kernel)
    solved = np.linalg.solve(fitted, np.column_stack([y, between.T]))
    mean = between @ solved[:, 0]
    deviation = np.sqrt(1 - (between * solved[:, 1:].T).sum(-1))

    error = mean - target(new)
    covered = (np.abs(error) < 2 * deviation).mean()
    print(f"root mean square error at new points {np.sqrt((error**2).mean()):.3f},")
    print(f"within two standard deviations at {covered:.0%} of them")


if __name__ == "__main__":
    main()
