"""Random distances and kernel matrices against float64: `python -m tests.families.distance_random
--device cuda --minutes 5`.

Each case draws a kernel (of one or several terms), an element type, sizes, layouts, batches,
values as numbers or tensors, and a result with guards around it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kronop import kernels
from kronop.families.distance import api
from kronop.families.distance.form import Bound, TermKind, sum_of, value_of

_EPS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_PRODUCTS = (TermKind.Dot, TermKind.NormA, TermKind.NormB)
_POWERS = (0, 0.5, 1, 1.3, 1.5, 2, 2.5, 3, 3.7, 4, float("inf"))
_EXTENTS = (0, 1, 2, 3, 5, 16, 31, 33, 64, 65, 127, 128, 129, 200, 257)
_FEATURES = (0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 32, 33, 64, 100)


@dataclass(frozen=True)
class Case:
    """One call: its operands in float64 as they were rounded, and what it is called with."""

    told: str
    points: tuple[Any, Any]
    bound: Bound
    mode: str
    element: str
    same: bool
    layouts: tuple[int, int, int]
    diagonal: int


def make(seed: int, number: int) -> Case:
    """Case `number` of `seed`."""
    random = np.random.default_rng([seed, number])
    kinds = ["float64", "float32", "float32", "float16", "bfloat16"]
    element = str(random.choice(kinds))
    m, n = (int(random.choice(_EXTENTS)) for _ in "mn")
    k = int(random.choice(_FEATURES))
    lead = [(), (), (2,), (3, 2)][random.integers(4)]
    same = bool(random.random() < 0.2)
    x1 = rounded(_points(random, lead, m, k), element)
    x2 = (
        x1
        if same
        else rounded(_points(random, lead if random.random() < 0.7 else (), n, k), element)
    )
    if not same and m and n and random.random() < 0.5:
        x2[..., 0, :] = x1[(0,) * (x1.ndim - 2)][0]  # Equal points.
    kernel = _kernel(random, lead, k, element)
    regularization = [None, None, 0.25][random.integers(3)]
    bound = kernel.bound(max(x1.ndim, x2.ndim) - 2, regularization)
    modes = ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    mode = modes[int(random.random() < 0.6)]
    told = f"{element} {x1.shape} {x2.shape} same={same} {mode} {kernel} + {regularization}"
    layouts = tuple(int(item) for item in random.integers(5, size=3))
    diagonal = int(random.integers(-3, 4))
    return Case(told, (x1, x2), bound, mode, element, same, layouts, diagonal)


def _points(random: np.random.Generator, lead: tuple[int, ...], m: int, k: int) -> Any:
    points = random.standard_normal((*lead, m, k))
    return points + (random.integers(0, 3) if random.random() < 0.3 else 0)


def rounded(array: Any, element: str) -> Any:
    """The array as tensors of that type hold it, in float64."""
    if element == "bfloat16":
        return torch.from_numpy(array).to(torch.bfloat16).double().numpy()
    return array.astype(element).astype(np.float64)


def _kernel(random: np.random.Generator, lead: tuple[int, ...], k: int, element: str) -> Any:
    def value() -> Any:
        number = float(np.float32(random.uniform(0.5, 3)))
        if random.random() < 0.6:
            return number
        shape = [lead, (), lead[-1:]][random.integers(3)]
        return np.asarray(random.uniform(0.5, 3, shape).astype(np.float32))

    def width() -> Any:
        if random.random() < 0.75:
            return value()
        return random.uniform(0.5, 3, (*lead, k)).astype(np.float32)

    def one() -> Any:
        p = float(random.choice(_POWERS)) if random.random() < 0.8 else value()
        return [
            lambda: kernels.PowerNorm(p, root=bool(random.integers(2))),
            lambda: kernels.PowerNorm(p, root=bool(random.integers(2))),
            lambda: kernels.Gaussian(width()),
            lambda: kernels.Laplace(width(), int(random.integers(1, 3))),
            lambda: kernels.Matern(float(random.choice([0.5, 1.5, 2.5])), width()),
            lambda: kernels.RationalQuadratic(value(), width()),
            lambda: kernels.Linear(),
            lambda: kernels.Polynomial(int(random.integers(1, 4)), value()),
            lambda: kernels.Cosine(),
        ][random.integers(9)]()

    kernel = one()
    if random.random() < 0.25:
        kernel = kernel + value() * one()
    elif random.random() < 0.15:
        kernel = kernel * one()
    return kernel


def expected(case: Case) -> tuple[Any, Any]:
    """(the result in float64, a bound of the error of each element)."""
    form, (x1, x2) = case.bound.form, case.points
    eps = _EPS["float64" if case.element == "float64" else "float32"]
    values = [np.asarray(item, np.float64) for item in case.bound.values]
    vectors = [np.asarray(item, np.float64) for item in case.bound.vectors]
    features = x1.shape[-1]
    inputs, errors = {}, []
    norms = _largest(x1) + _largest(x2)
    for index, term in enumerate(form.terms):
        total = term.of(x1, x2, values, vectors)
        size = total
        if term.kind in _PRODUCTS:
            size = term.of(np.abs(x1), np.abs(x2), values, vectors)
        # A power of a float takes a logarithm and an exponential, of some units each.
        steps = features + (120 if term.kind is TermKind.General else 16)
        error = eps * steps * size
        if case.mode == "use_mm_for_euclid_dist" and term.kind is TermKind.Two:
            error = error + 4 * eps * (features + 8) * norms**2
        inputs[sum_of(index)] = total
        errors.append(error)
    inputs |= {value_of(i): item[..., None, None] for i, item in enumerate(values)}
    with np.errstate(all="ignore"):
        value = form.expression.evaluate(inputs)
        bound = np.zeros(np.shape(value))
        for signs in itertools.product((-1, 1), repeat=len(errors)):
            moved = {
                sum_of(i): np.maximum(inputs[sum_of(i)] + sign * error, _least(form.terms[i].kind))
                for i, (sign, error) in enumerate(zip(signs, errors, strict=True))
            }
            changed = form.expression.evaluate(inputs | moved)
            bound = np.maximum(bound, np.abs(changed - value))
    whole = form.evaluate(x1, x2, values, vectors, case.diagonal)
    magnitude = np.abs(whole) + np.abs(value)
    least = 2.0**-24 if case.element == "float16" else 1e-37  # Of what is subnormal.
    return whole, bound + 64 * eps * magnitude + 2 * _EPS[case.element] * np.abs(whole) + least


def _least(kind: TermKind) -> float:
    return -np.inf if kind is TermKind.Dot else 0.0


def _largest(points: Any) -> Any:
    return np.sqrt((points**2).sum(-1)).max(initial=0.0)


def laid_out(array: Any, way: int) -> Any:
    """The same values in memory of other strides; `way` counts layouts."""
    if way == 1:
        return array.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if way == 2 and array.ndim > 2:  # Batches last.
        return np.moveaxis(np.moveaxis(array, 0, -1).copy(), -1, 0)
    if way == 3:
        wide = np.full((*array.shape[:-1], array.shape[-1] * 2 + 3), np.nan, array.dtype)
        wide[..., 1:-2:2] = array
        return wide[..., 1:-2:2]
    return array


def run(case: Case, device: str) -> str:
    """What is wrong with a case's result; empty if nothing is."""
    x1 = _tensor(laid_out(case.points[0], case.layouts[0]), case, device)
    x2 = x1 if case.same else _tensor(laid_out(case.points[1], case.layouts[1]), case, device)
    wanted, bound = expected(case)
    memory = _tensor(
        np.full((*wanted.shape[:-2], wanted.shape[-2] + 2, wanted.shape[-1] + 3), 77.0),
        case,
        device,
    )
    out = memory[..., 1:-1, 1:-2]
    if case.layouts[2] == 1:
        memory = _tensor(
            np.full((*wanted.shape[:-2], wanted.shape[-1] + 2, wanted.shape[-2] + 3), 77.0),
            case,
            device,
        )
        out = memory[..., 1:-1, 1:-2].swapaxes(-1, -2)
    values = _on_device(case.bound, case, device)
    for times in range(3):
        out[...] = float("nan")
        api.matrix_of(x1, x2, values, case.mode, out, case.diagonal)
        found = _array(out)
        wrong = ~(np.abs(found - wanted) <= bound)
        both = (np.isnan(found) & np.isnan(wanted)) | (found == wanted)
        wrong &= ~both & ~((np.abs(wanted) > 6e4) & (case.element == "float16"))
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            much = f"{wrong.sum()} of {wrong.size} wrong"
            return f"call {times}: {much}, at {at} {found[at]} for {wanted[at]} +- {bound[at]}"
        out[...] = 77.0
        if (_array(memory) != 77).any():
            return "elements beside the result were written"
    return ""


def _on_device(bound: Bound, case: Case, device: str) -> Bound:
    def placed(item: Any) -> Any:
        if not isinstance(item, np.ndarray):
            return item
        item = item.astype("float64" if case.element == "float64" else "float32")
        return torch.from_numpy(item).to(device)

    return Bound(
        form=bound.form,
        values=tuple(map(placed, bound.values)),
        vectors=tuple(map(placed, bound.vectors)),
    )


def _tensor(array: Any, case: Case, device: str) -> Any:
    """A torch tensor of the case's type with the array's strides."""
    held = torch.from_numpy(array)
    made = torch.empty_strided(
        held.shape, held.stride(), dtype=getattr(torch, case.element), device=device
    )
    return made.copy_(held)


def _array(tensor: Any) -> Any:
    return tensor.double().cpu().numpy()


def cases(seed: int) -> Iterator[tuple[int, Case]]:
    for number in itertools.count():
        yield number, make(seed, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--case", type=int, help="run this one alone")
    options = parser.parse_args()
    if options.case is not None:
        case = make(options.seed, options.case)
        print(case.told, run(case, options.device) or "nothing wrong", sep="\n")
        return 0
    bad, end, count = 0, time.monotonic() + options.minutes * 60, Counter[str]()
    for number, case in cases(options.seed):
        if time.monotonic() > end:
            break
        count[case.element] += 1
        trouble = run(case, options.device)
        if trouble:
            bad += 1
            print(f"--seed {options.seed} --case {number}: {case.told}\n    {trouble}", flush=True)
    print(f"seed {options.seed}: {dict(count)}, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
