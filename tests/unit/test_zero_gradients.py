"""Derivatives that are zero are zeros, of all operators of kronop.torch, by all of torch's ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import kronop.torch as ours  # noqa: E402
from kronop import kernels  # noqa: E402
from tests.unit.visited_cases import tree_of  # noqa: E402

_NORM = kernels.PowerNorm(0)
_TREE = tree_of(
    lambda accum, bias, c: (accum + bias, c * 2.0), bias="row", c="tensor"
)  # Its second result depends on c alone.


@dataclass(frozen=True)
class Case:
    """A call of operands of these shapes.

    Attributes:
        zeros: the places of operands whose gradients are zero.
        twice: of how many operands its gradients are differentiated.
        tangents: whether it has any, in forward mode.
    """

    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    zeros: tuple[int, ...]
    twice: int = 0
    tangents: bool = True

    def given(self) -> list[Any]:
        random = torch.Generator().manual_seed(1)
        kind = torch.float64
        return [torch.rand(shape, generator=random, dtype=kind) + 0.5 for shape in self.shapes]


def _products() -> dict[str, Case]:
    found = {}
    for rows in (3, 0):
        of_x = () if rows else (0, 1, 2)
        x, z, turned = (rows, 4), (rows, 6), (6, rows)
        found |= {
            f"gemkm, {rows} rows, alpha 0": Case(
                lambda x, f, g: ours.gemkm(x, [f, g], alpha=0), (x, (2, 3), (2, 2)), (0, 1, 2), 3
            ),
            f"gemkm, {rows} rows, beta 0": Case(
                lambda x, f, g, z: ours.gemkm(x, [f, g], z=z, beta=0),
                (x, (2, 3), (2, 2), z),
                (*of_x, 3),
                3,
            ),
            f"gekmm, {rows} columns": Case(
                lambda x, f, g, z: ours.gekmm([f, g], x, z=z, beta=0),
                ((4, rows), (3, 2), (2, 2), turned),
                (*of_x, 3),
                3,
            ),
            f"ksmm, {rows} rows": Case(
                lambda x, w, z: ours.ksmm(x, w, alpha=0, z=z, beta=0),
                ((rows, 8), (2, 3, 2, 2), (rows, 12)),
                (0, 1, 2),
                2,
            ),
            f"ksmm of two, {rows} rows": Case(
                lambda x, v, w, b: ours.ksmm(x, [v, w], alpha=0, bias=b, activation="relu"),
                ((rows, 8), (2, 3, 2, 2), (3, 1, 2, 2), (6,)),
                (0, 1, 2) if rows else (0, 1, 2, 3),
            ),
        }
    for m, n, k in ((2, 3, 4), (0, 3, 4), (2, 0, 4), (2, 3, 0)):
        found |= {
            f"matmul {m} {n} {k}": Case(
                lambda a, b, c, d: ours.matmul(a, b, c, 0, 0, bias=d),
                ((m, k), (k, n), (m, n), (n,)),
                (0, 1, 2) if m else (0, 1, 2, 3),
                2,
            ),
            f"matmul {m} {n} {k}, gelu": Case(
                lambda a, b, d: ours.matmul(a, b, alpha=0, bias=d, activation="gelu"),
                ((m, k), (k, n), (n,)),
                (0, 1),
            ),
            f"matmul_visited {m} {n} {k}": Case(
                lambda a, b, d, c: ours.matmul_visited(_TREE, a, b, bias=d, c=c)[1],
                ((m, k), (k, n), (n,), (m, n)),
                (0, 1, 2),
            ),
        }
    for n, c, k in ((0, 2, 3), (2, 0, 3), (2, 2, 0)):
        for more in ("", ", gelu"):
            found[f"conv2d {n} {c} {k}{more}"] = Case(
                lambda x, w, b, name=more[2:]: ours.conv2d(
                    x, w, b, activation=name or None, layout="NCHW"
                ),
                ((n, c, 4, 5), (k, c, 2, 3), (k,)),
                (0, 1) if n and k else (0, 1, 2),
                0 if more else 2,
            )
    return found


def _distances() -> dict[str, Case]:
    found = {
        "cdist, p = 0": Case(
            lambda x, y: ours.cdist(x, y, 0), ((3, 2), (4, 2)), (0, 1), tangents=False
        ),
        "kernel_matrix, p = 0": Case(
            lambda x, y, b: ours.kernel_matrix(x, y, kernels.Scaled(b, _NORM)),
            ((3, 2), (4, 2), ()),
            (0, 1),
            tangents=False,
        ),
        "kernel_matmul, p = 0": Case(
            lambda x, y, v: ours.kernel_matmul(x, y, v, _NORM),
            ((3, 2), (4, 2), (4, 2)),
            (0, 1),
            tangents=False,
        ),
    }
    for m, n, k in ((0, 4, 2), (3, 0, 2), (3, 4, 0), (3, 0, 0)):
        points, every = ((m, k), (n, k)), (0, 1)
        for p in (0, 1, 2, float("inf")):
            found[f"cdist {m} {n} {k}, p = {p}"] = Case(
                lambda x, y, p=p: ours.cdist(x, y, p), points, every, tangents=p == 2
            )
        found |= {
            f"kernel_matrix {m} {n} {k}": Case(
                lambda x, y, b, c: ours.kernel_matrix(x, y, kernels.Gaussian(b), c),
                (*points, (), ()),
                every,
                3,
            ),
            f"kernel_matmul {m} {n} {k}": Case(
                lambda x, y, v, b: ours.kernel_matmul(x, y, v, kernels.Gaussian(b)),
                (*points, (n, 2), ()),
                every,
                tangents=False,
            ),
        }
    points = ((3, 2), (0, 2))
    return found | {
        "cdist, p = 20": Case(lambda x, y: ours.cdist(x, y, 20), points, (0, 1), tangents=False),
        "cdist, p a tensor": Case(
            lambda x, y, p: ours.cdist(x, y, p), (*points, ()), (0, 1, 2), tangents=False
        ),
        "kernel_matrix, widths": Case(
            lambda x, y, b, c: ours.kernel_matrix(x, y, kernels.Laplace(b) + kernels.Laplace(c)),
            (*points, (2,), ()),
            (0, 1, 2, 3),
            tangents=False,
        ),
        "kernel_matmul, another norm": Case(
            lambda x, y, v, b: ours.kernel_matmul(x, y, v, kernels.Laplace(b)),
            (*points, (0, 2), ()),
            (0, 1, 2, 3),
            tangents=False,
        ),
        "kernel_matmul, no columns": Case(
            lambda x, y, v, b: ours.kernel_matmul(x, y, v, kernels.Gaussian(b)),
            ((3, 2), (4, 2), (4, 0), ()),
            (0, 1, 2, 3),
            tangents=False,
        ),
    }


_CASES = _products() | _distances()


def test_all_operators_are_among_the_cases() -> None:
    names = {name.partition(",")[0].partition(" ")[0] for name in _CASES}
    assert names | {"decompositions", "nn", "quantized_gemkm"} == set(ours.__all__)


def _needing(given: list[Any]) -> list[Any]:
    return [item.clone().requires_grad_() for item in given]


@pytest.mark.parametrize("name", _CASES)
def test_they_are_zeros(name: str) -> None:
    case = _CASES[name]
    given = _needing(case.given())
    result = case.call(*given)
    weights = torch.rand_like(result)
    expected = torch.autograd.grad(result, given, weights)
    for place, (item, grad) in enumerate(zip(given, expected, strict=True)):
        assert (grad.shape, grad.dtype) == (item.shape, item.dtype)
        assert not grad.any() if place in case.zeros else grad.isfinite().all()
    (case.call(*given) * weights).sum().backward()
    recorded = torch.autograd.grad(case.call(*given), given, weights, create_graph=True)
    places = tuple(range(len(given)))
    plain = [item.detach() for item in given]
    transformed = torch.func.grad(lambda *t: (case.call(*t) * weights).sum(), places)(*plain)
    for found in ([item.grad for item in given], recorded, transformed):
        torch.testing.assert_close(list(found), list(expected))
    if case.twice:
        total = sum(item.sum() for item in recorded if item.requires_grad)
        torch.autograd.grad(total, given[: case.twice])
    if case.tangents:
        directions = tuple(map(torch.ones_like, plain))
        _, tangent = torch.func.jvp(case.call, tuple(plain), directions)
        assert tangent.shape == result.shape


def test_they_are_zeros_where_they_are_compiled() -> None:
    names = ("gemkm, 0 rows, beta 0", "ksmm, 0 rows", "matmul_visited 2 3 4", "cdist, p = 0")
    names += ("cdist 3 0 0, p = inf", "kernel_matmul, p = 0", "conv2d 0 2 3")
    cases = [_CASES[name] for name in names]

    def loss(*every: Any) -> Any:
        tensors, total = iter(every), 0.0
        for case in cases:
            total = total + case.call(*[next(tensors) for _ in case.shapes]).sum()
        return total

    given = _needing([item for case in cases for item in case.given()])
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(*given), given)
    for item, grad in zip(given, found, strict=True):
        assert (grad.shape, grad.dtype) == (item.shape, item.dtype)
    places = iter(found)
    for case in cases:
        grads = [next(places) for _ in case.shapes]
        assert not any(grads[place].any() for place in case.zeros)
