"""A Gaussian process on a grid of 120 x 80 points: its hyperparameters by the marginal likelihood,
a finer map with standard deviations, and then a third of the points missing.

    python examples/gaussian_process_on_a_grid.py

The covariance of 9,600 points is a Kronecker product of a 120 x 120 and an 80 x 80 matrix. As a
dense matrix it takes 737 MB, and a Cholesky decomposition of it is 3e11 operations.
"""

from __future__ import annotations

import math

import numpy as np

import kronop

NOISE = 0.1


def target(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.sin(6 * u[:, None]) * np.cos(4 * v) + 0.5 * u[:, None]


def covariance(x1: np.ndarray, x2: np.ndarray, width: float) -> np.ndarray:
    return kronop.kernel_matrix(x1[:, None], x2[:, None], kronop.kernels.Gaussian(width))


def log_likelihood(K: kronop.KroneckerOperator, y: np.ndarray, sigma2: float) -> float:
    """The log of N(y; 0, K + sigma2 I) (Rasmussen and Williams, equation 2.30)."""
    eigen = K.eigh()  # Two small decompositions, for both of what follows.
    fit = y @ eigen.solve(y, sigma2)
    return -0.5 * float(fit + eigen.logdet(sigma2) + len(y) * math.log(2 * math.pi))


def main() -> None:
    rng = np.random.default_rng(0)
    u, v = np.linspace(0, 1, 120), np.linspace(0, 1, 80)
    truth = target(u, v)
    y = (truth + NOISE * rng.standard_normal(truth.shape)).ravel()

    best = -math.inf
    for width in (0.05, 0.1, 0.2, 0.4, 0.8):
        K = kronop.KroneckerOperator([covariance(u, u, width), covariance(v, v, width)])
        found = log_likelihood(K, y, NOISE**2)
        print(f"width {width:4.2f}: log likelihood {found:8.1f}{' *' if found > best else ''}")
        if found > best:
            best, chosen, fitted = found, width, K

    # Predictions at a finer grid: the cross covariance is a Kronecker product as well.
    fine_u, fine_v = np.linspace(0, 1, 200), np.linspace(0, 1, 150)
    between = kronop.KroneckerOperator(
        [covariance(fine_u, u, chosen), covariance(fine_v, v, chosen)]
    )
    values, vectors = fitted.eigh()
    mean = between @ fitted.solve(y, NOISE**2)
    # The variance is 1 - diag(C Q (values + sigma2)^-1 Q^T C^T): C Q is a Kronecker product, and so
    # are its elements squared.
    squares = kronop.KroneckerOperator([factor**2 for factor in (between @ vectors).factors])
    deviation = np.sqrt(np.clip(1 - squares @ (1 / (values + NOISE**2)), 0, None))
    error = mean - target(fine_u, fine_v).ravel()
    print(f"error {np.sqrt((error**2).mean()):.4f} at {len(error)} points,", end=" ")
    print(f"within two standard deviations at {(np.abs(error) < 2 * deviation).mean():.0%}")

    # With missing points the covariance is no product any more, but its products still are.
    seen = (rng.uniform(size=len(y)) > 1 / 3).astype(float)[:, None]
    weights, info = kronop.cg(
        lambda x: seen * (fitted @ (seen * x)), seen * y[:, None], sigma2=NOISE**2
    )
    error = (fitted @ weights)[:, 0] - truth.ravel()
    print(f"a third missing: error {np.sqrt((error**2).mean()):.4f}", end=" ")
    print(f"after {info.iterations} iterations")


if __name__ == "__main__":
    main()
