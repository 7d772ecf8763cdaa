"""Patterns of chains for given numbers of features.

They are lists of (a, b, c, d), the right-most factor first, as `KSLinear` takes them.

- T. Dao, B. Chen, N. Sohoni et al.: Monarch: expressive structured matrices for efficient and
  accurate training. ICML 2022, arXiv 2204.00595.
- T. Dao, A. Gu, M. Eichhorn, A. Rudra, C. Re: Learning fast algorithms for linear transforms using
  butterfly factorizations. ICML 2019, arXiv 1903.05895.

Example:
    >>> from kronop.torch.nn import KSLinear, patterns
    >>> KSLinear(patterns.monarch(64, 128, blocks=8)).out_features
    128
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError
from kronop.families.ksparse.description import Pattern

__all__ = ["butterfly", "monarch", "within_budget"]
__dir__ = __all__.copy  # What completes is public.


def monarch(in_features: int, out_features: int, blocks: int) -> list[Pattern]:
    """Two block-diagonal factors of `blocks` dense blocks, with a transposition between them.

    The right-most factor takes in_features / blocks features to m in each block; the other one
    takes m to out_features / blocks; m is the smaller one of both. The weights are a fraction of
    2 / blocks of a dense square matrix. Every output depends on every input if blocks <= m; a
    square matrix has the least weights then for blocks = sqrt(features).

    Args:
        in_features, out_features: as for torch.nn.Linear.
        blocks: a divisor of both.

    Returns:
        `[(blocks, m, in_features / blocks, 1), (1, out_features / blocks, m, blocks)]`.

    Raises:
        ArgumentError: `blocks` does not divide both numbers of features.

    Example:
        >>> from kronop.torch.nn import patterns
        >>> patterns.monarch(64, 128, blocks=8)
        [(8, 8, 8, 1), (1, 16, 8, 8)]
    """
    n_in, n_out = _positive("in_features", in_features), _positive("out_features", out_features)
    blocks = _positive("blocks", blocks)
    if math.gcd(n_in, n_out) % blocks:
        raise ArgumentError(
            "blocks",
            expected=f"a divisor of both {n_in} and {n_out}",
            got=blocks,
            hint=f"one of {', '.join(map(str, _divisors(math.gcd(n_in, n_out))))}",
        )
    middle = min(n_in, n_out) // blocks
    return [(blocks, middle, n_in // blocks, 1), (1, n_out // blocks, middle, blocks)]


def butterfly(features: int) -> list[Pattern]:
    """One factor of p x p blocks for each prime factor p of `features`; for a power of two the
    log2(features) factors of a fast Fourier transform.

    Args:
        features: the number of features that the chain takes and returns.

    Returns:
        (features / p, p, p, 1) for the first prime factor p, and for each later one (a, p, p, d)
        with d the product of those before it.

    Raises:
        ArgumentError: `features` is not a whole number from 2 on.

    Example:
        >>> from kronop.torch.nn import patterns
        >>> patterns.butterfly(8)
        [(4, 2, 2, 1), (2, 2, 2, 2), (1, 2, 2, 4)]
    """
    rest = _positive("features", features)
    if rest == 1:
        raise ArgumentError(
            "features", expected="at least 2", got=1, hint="a butterfly mixes pairs"
        )
    behind, found = 1, []
    for prime in _primes(rest):
        rest //= prime
        found.append((rest, prime, prime, behind))
        behind *= prime
    return found


def within_budget(in_features: int, out_features: int, parameters: int) -> list[Pattern]:
    """The chain of two factors with at most so many weights whose product may have the highest
    rank. Of those, it is the one with the largest blocks, since kernels are fastest for them, that
    has at least three quarters of the weights, if there is one. One dense factor if the budget
    allows it.

    Every output depends on every input. The factors have the patterns (a, m, in_features / a, 1)
    and (1, out_features / d, a m / d, d), hence m (in_features + a out_features / d) weights, and
    their product has at most the rank a m.

    Args:
        in_features, out_features: as for torch.nn.Linear.
        parameters: the most weights that the chain may have, without those of a bias.

    Returns:
        The patterns of the chain, the right-most factor first.

    Raises:
        ArgumentError: even the chain of rank one, of in_features + out_features weights, has too
            many.

    Example:
        >>> from kronop.torch.nn import patterns
        >>> chain = patterns.within_budget(64, 64, parameters=1000)
        >>> sum(a * b * c * d for a, b, c, d in chain)
        960
    """
    return chosen(in_features, out_features, parameters, False)


def chosen(in_features: int, out_features: int, parameters: int, bias: bool) -> list[Pattern]:
    """`within_budget`, where the parameters are also those of a bias, if there is one."""
    n_in, n_out = _positive("in_features", in_features), _positive("out_features", out_features)
    of_bias = n_out if bias else 0
    least, given = n_in + n_out + of_bias, whole(parameters)
    if type(given) is not int or given < least:
        biased = f" and {of_bias} for the bias" if bias else ""
        raise ArgumentError(
            "parameters",
            expected=f"at least {least}: {n_in} + {n_out} for the weights{biased}",
            got=repr(parameters),
            hint="each input and each output has at least one weight",
        )
    given -= of_bias
    if given >= n_in * n_out:
        return [(1, n_out, n_in, 1)]
    return max(_two_factors(n_in, n_out, given), key=lambda chain: _merit(chain, given))


def _two_factors(n_in: int, n_out: int, most: int) -> Iterator[list[Pattern]]:
    """The chains of `within_budget` with the largest m, for each a and d."""
    for a in _divisors(n_in):
        for d in _divisors(n_out):
            # d divides a m; blocks that are larger than the features around them add nothing.
            step = d // math.gcd(a, d)
            m = min(most * d // (n_in * d + a * n_out), n_in // a, n_out // a) // step * step
            if m >= d:  # Or the blocks of the second factor miss some of those of the first.
                yield [(a, m, n_in // a, 1), (1, n_out // d, a * m // d, d)]


def _merit(chain: list[Pattern], most: int) -> tuple[int, bool, int, int]:
    """The rank, whether most of the budget is used, the shortest side of a dense block, and the
    number of weights."""
    (a, m, _, _), _ = chain
    sides = [side for _, b, c, _ in chain for side in (b, c)]
    weights = sum(math.prod(pattern) for pattern in chain)
    return a * m, 4 * weights >= 3 * most, min(sides), weights


def _positive(name: str, value: Any) -> int:
    found = whole(value)
    if type(found) is not int or found < 1:
        raise ArgumentError(
            name, expected="a positive integer", got=repr(value), hint="count features"
        )
    return found


def _divisors(number: int) -> list[int]:
    small = [item for item in range(1, math.isqrt(number) + 1) if not number % item]
    return sorted({*small, *(number // item for item in small)})


def _primes(number: int) -> list[int]:
    found, prime = [], 2
    while prime * prime <= number:
        while not number % prime:
            found.append(prime)
            number //= prime
        prime += 1
    return [*found, number] if number > 1 else found
