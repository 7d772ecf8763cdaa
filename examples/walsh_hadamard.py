"""Transforms that are Kronecker products: Walsh-Hadamard, and the cosine transform of images.

1. The Walsh-Hadamard matrix of size 4096 is a Kronecker product of twelve 2 x 2 matrices, or of six
   4 x 4, four 8 x 8, three 16 x 16 and two 64 x 64 ones. All are timed, against the textbook's
   twelve passes in NumPy. Then the transform finds the bits behind noisy parities.
2. The cosine transform of an image's 8 x 8 blocks is a product of two factors, that of a film's
   8 x 8 x 8 blocks one of three. Both are compressed to a twentieth of their coefficients.

    pip install -e '.[scipy]'    (SciPy's transform is compared where it is installed)
    python examples/walsh_hadamard.py [--rows 1024]

It takes ten seconds, and prints (on two cores of an Intel Xeon; times differ)

    1024 rows of 4096: NumPy's twelve passes 118.1 ms
      12 factors of  2 x  2:    2.9 ms, error 1.1e-07
       6 factors of  4 x  4:    2.8 ms, error 1.0e-07
       4 factors of  8 x  8:    2.0 ms, error 1.1e-07
       3 factors of 16 x 16:    1.5 ms, error 1.3e-07
       2 factors of 64 x 64:    8.0 ms, error 2.1e-07
    noisy parities: 200 of 200 secrets found
    a film of (16, 128, 192), from 5% of its coefficients:
      8 x 8 Walsh-Hadamard  39.1 dB
      8 x 8 cosines         41.6 dB
      8 x 8 x 8 cosines     48.7 dB
      largest difference from scipy.fft.dctn 4.8e-06

docs/tutorials/walsh-hadamard.md goes through it.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable

import numpy as np

import kronop

BITS = 12
SIZE = 2**BITS
BLOCK = 8
KEPT = 0.05


def hadamard(size: int) -> np.ndarray:
    """[[H, H], [H, -H]] with H of half the size, and [[1]] of size 1."""
    if size == 1:
        return np.ones((1, 1), np.float32)
    return np.kron(np.array([[1, 1], [1, -1]], np.float32), hadamard(size // 2))


def cosines(size: int) -> np.ndarray:
    """The orthogonal matrix of the cosine transform (DCT-II): a row for each frequency."""
    k, i = np.arange(size)[:, None], np.arange(size)
    matrix = np.sqrt(2 / size) * np.cos(np.pi * (2 * i + 1) * k / (2 * size))
    matrix[0] /= np.sqrt(2)
    return matrix.astype(np.float32)


def butterflies(x: np.ndarray) -> np.ndarray:
    """The fast Walsh-Hadamard transform of rows: log2(size) passes of sums and differences."""
    rows, size = x.shape
    half = 1
    while half < size:
        pairs = x.reshape(rows, -1, 2, half)
        left, right = pairs[:, :, 0], pairs[:, :, 1]
        x = np.stack([left + right, left - right], axis=2)
        half *= 2
    return x.reshape(rows, size)


def milliseconds(call: Callable[[], object]) -> float:
    """The fastest of some calls after two that are not counted."""
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times[2:])


def walsh_hadamard(rows: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, SIZE)).astype(np.float32)
    expected = butterflies(x.astype(np.float64))
    taken = milliseconds(lambda: butterflies(x))
    print(f"{rows} rows of {SIZE}: NumPy's twelve passes {taken:.1f} ms")
    out = np.empty_like(x)
    for size in (2, 4, 8, 16, 64):
        count = BITS // (size.bit_length() - 1)
        factors = [hadamard(size)] * count
        y = kronop.gemkm(x, factors, out=out)
        error = np.linalg.norm(y - expected) / np.linalg.norm(expected)
        taken = milliseconds(lambda factors=factors: kronop.gemkm(x, factors, out=out))
        print(f"  {count:2} factors of {size:2} x {size:2}: {taken:6.1f} ms, error {error:.1e}")


def hidden_parities(count: int = 200) -> int:
    """How many of so many secrets are found, when 40 % of the answers are wrong.

    Each secret is a number s of 12 bits; the answer to i is the parity of the bits of i & s, as a
    sign. All 4096 answers of a secret are a row, whose transform is largest at s.
    """
    rng = np.random.default_rng(1)
    secrets = rng.integers(SIZE, size=count)
    answers = hadamard(SIZE)[secrets]
    answers = np.where(rng.uniform(size=answers.shape) < 0.4, -answers, answers)
    spectra = kronop.gemkm(answers, [hadamard(16)] * 3)
    return int((spectra.argmax(axis=1) == secrets).sum())


def film(frames: int, height: int, width: int) -> np.ndarray:
    """A smooth pattern with edges, a disc and a frame, of which the disc moves."""
    t, v, u = np.meshgrid(
        *(np.linspace(0, 1, size) for size in (frames, height, width)), indexing="ij"
    )
    smooth = 0.5 + 0.2 * np.sin(9 * u + 3 * v) * np.cos(5 * v)
    disc = 0.25 * ((u - 0.3 - 0.2 * t) ** 2 + (v - 0.5) ** 2 < 0.03)
    box = 0.2 * ((abs(u - 0.75) < 0.12) & (abs(v - 0.5) < 0.3))
    return (smooth + disc - box).astype(np.float32)


def blocks(array: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """A row for each block of these sizes, of an array of as many dimensions."""
    split = array.reshape(
        [n for extent, size in zip(array.shape, sizes, strict=True) for n in (extent // size, size)]
    )
    count = len(sizes)
    return split.transpose(*range(0, 2 * count, 2), *range(1, 2 * count, 2)).reshape(
        -1, int(np.prod(sizes))
    )


def compressed(x: np.ndarray, factors: list[np.ndarray]) -> np.ndarray:
    """Rows after their transform, the largest coefficients alone, and the way back."""
    coefficients = kronop.gemkm(x, [factor.T for factor in factors])
    bound = np.quantile(np.abs(coefficients), 1 - KEPT)
    coefficients[np.abs(coefficients) < bound] = 0
    return kronop.gemkm(coefficients, factors)  # Orthogonal: the inverse is the transpose.


def decibels(x: np.ndarray, found: np.ndarray) -> float:
    """The peak signal-to-noise ratio of values between 0 and 1."""
    return float(-10 * np.log10(np.mean((x - found) ** 2)))


def images() -> None:
    shots = film(16, 128, 192)
    C, H = cosines(BLOCK), hadamard(BLOCK) / np.float32(np.sqrt(BLOCK))
    flat = blocks(shots, (1, BLOCK, BLOCK))
    solid = blocks(shots, (BLOCK, BLOCK, BLOCK))
    print(f"a film of {shots.shape}, from {KEPT:.0%} of its coefficients:")
    for name, x, factors in (
        ("8 x 8 Walsh-Hadamard", flat, [H, H]),
        ("8 x 8 cosines", flat, [C, C]),
        ("8 x 8 x 8 cosines", solid, [C, C, C]),
    ):
        print(f"  {name:21} {decibels(x, compressed(x, factors)):.1f} dB")
    if importlib.util.find_spec("scipy") is not None:
        from scipy.fft import dctn

        found = kronop.gemkm(solid, [C.T] * 3).reshape(-1, BLOCK, BLOCK, BLOCK)
        expected = dctn(solid.reshape(found.shape), axes=(1, 2, 3), norm="ortho")
        print(f"  largest difference from scipy.fft.dctn {np.abs(found - expected).max():.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024, help="rows that are timed (1024)")
    options = parser.parse_args()
    walsh_hadamard(options.rows)
    print(f"noisy parities: {hidden_parities()} of 200 secrets found")
    images()


if __name__ == "__main__":
    main()
