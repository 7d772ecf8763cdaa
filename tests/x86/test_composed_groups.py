"""Groups whose calls are composed of known products: results and refusals as if all are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.args import host
from kronop.core import prepared, winners
from kronop.emit.x86 import planning
from kronop.families.gemm import composed_api
from kronop.families.gemm.x86 import cutting

_SIZES = [(3, 5, 4), (1, 2, 7), (6, 6, 6), (40, 33, 50), (0, 4, 3), (7, 4, 0), (3, 0, 2)]
grouped = kronop.gemm.grouped_matmul


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The shapes of A of products that were checked."""
    shapes, make = [], composed_api.GemmArguments

    class Counted(make):  # type: ignore[valid-type, misc]
        def __init__(self, *given: Any, **more: Any) -> None:
            shapes.append(tuple(more["A"].shape))
            super().__init__(*given, **more)

    monkeypatch.setattr(composed_api, "GemmArguments", Counted)
    prepared.forget()
    composed_api._parts.clear()
    yield shapes
    prepared.forget()


@pytest.fixture(params=["numpy", "torch"])
def convert(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    if request.param == "numpy":
        return lambda array: array
    return pytest.importorskip("torch").from_numpy  # type: ignore[no-any-return]


def _drawn(convert: Any, *shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng()
    return [convert(random.integers(-3, 4, shape).astype(np.float32)) for shape in shapes]


def _operands(convert: Any, sizes: Any) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """As, Bs, Cs and biases of small integers, whose products are exact."""
    return (
        _drawn(convert, *((m, k) for m, _, k in sizes)),
        _drawn(convert, *((k, n) for _, n, k in sizes)),
        _drawn(convert, *((m, n) for m, n, _ in sizes)),
        _drawn(convert, *((n,) for _, n, _ in sizes)),
    )


def _equal(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def test_every_product_is_checked_once(checked: list[Any], convert: Any) -> None:
    random = np.random.default_rng(7)
    for _ in range(12):
        sizes = [_SIZES[at] for at in random.integers(0, len(_SIZES), random.integers(1, 9))]
        a, b, c, biases = _operands(convert, sizes)
        products = [np.asarray(x) @ np.asarray(y) for x, y in zip(a, b, strict=True)]
        sums = [
            np.maximum(2 * x + 3 * np.asarray(z) + np.asarray(bias), 0)
            for x, z, bias in zip(products, c, biases, strict=True)
        ]
        outs = [item + np.nan for item in c]
        _equal(grouped(a, b), products)
        assert grouped(a, b, outs=outs)[-1] is outs[-1]
        _equal(outs, products)
        _equal(grouped(a, b, c, 2.0, 3.0, biases, "relu"), sums)
        assert grouped(a, b, c, 2.0, 3.0, biases, "relu", outs=c)[0] is c[0]
        _equal(c, sums)
    # Of new results that have no columns, torch and kronop tell other strides.
    most = {(m, k): 4 for m, _, k in _SIZES}
    for shape in most:
        if shape != (3, 2):
            assert checked.count(shape) == 4


def test_a_group_takes_the_long_way_for_new_products_alone(checked: list[Any]) -> None:
    a, b, _, _ = _operands(lambda array: array, _SIZES[:4])
    grouped(a, b)
    checked.clear()
    more, other = _drawn(lambda array: array, (9, 8), (8, 2))
    found = grouped([*a, more, a[2], more], [*b, other, b[2], other])
    assert checked == [(9, 8)]
    _equal(found[4:], [more @ other, a[2] @ b[2], more @ other])


def test_groups_of_any_length(convert: Any) -> None:
    sizes = _SIZES[:3] * 500
    a, b, _, _ = _operands(convert, sizes)
    for _ in range(3):
        _equal(grouped(a, b), [np.asarray(x) @ np.asarray(y) for x, y in zip(a, b, strict=True)])


def test_products_of_several_kinds_of_tensors(checked: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    a, b, _, _ = _operands(lambda array: array, _SIZES[:2])
    wanted = [x @ y for x, y in zip(a, b, strict=True)]
    for kinds in ((torch.from_numpy, np.asarray), (np.asarray, torch.from_numpy)):
        for _ in range(3):
            given = [[kind(x) for kind, x in zip(kinds, items, strict=True)] for items in (a, b)]
            found = grouped(*given)
            _equal(found, wanted)
            assert [type(x) for x in found] == [type(x) for x in given[0]]


def test_tuning_and_threads_make_products_anew(
    checked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    a, b, _, _ = _operands(torch.from_numpy, _SIZES[:4])
    wanted = [np.asarray(x) @ np.asarray(y) for x, y in zip(a, b, strict=True)]
    before = torch.get_num_threads()
    try:
        for threads in (before, before + 1, before, before + 1):
            torch.set_num_threads(threads)
            _equal(grouped(a, b), wanted)
    finally:
        torch.set_num_threads(before)
    assert len(checked) == 2 * len(a)
    monkeypatch.setattr(winners._process, "generation", winners.generation() + 1)
    _equal(grouped(a, b), wanted)
    assert len(checked) == 3 * len(a)


def test_refusals_are_those_of_the_long_way() -> None:
    a, b, c, _ = _operands(lambda array: array, _SIZES[:4])
    grouped(a, b)
    for given, message in (
        (([*a[:3], b[3]], b), "product 3 of the group: shape of"),
        (([*a[:3], a[3].astype(np.float64)], b), r"As\[3\]"),
        (([*a[:3], a[3].astype(np.float64)], [*b[:3], b[3].astype(np.float64)]), r"As\[3\]"),
        ((a, b, c), "beta"),
    ):
        with pytest.raises(kronop.KronopError, match=message):
            grouped(*given)
    double = [[x.astype(np.float64) for x in items] for items in (a, b)]
    grouped(*double)
    with pytest.raises(kronop.KronopError, match=r"As\[1\]"):  # Both products are known.
        grouped([a[0], double[0][1]], [b[0], double[1][1]])
    outs = [np.zeros(x.shape, np.float32) for x in c]
    grouped(a, b, outs=outs)
    with pytest.raises(kronop.ArgumentError, match=r"D\[0\] and D\[2\]"):
        grouped([*a[:2], a[0]], [*b[:2], b[0]], outs=[*outs[:2], outs[0]])
    outs[3].flags.writeable = False
    with pytest.raises(kronop.ArgumentError, match="writable"):
        grouped(a, b, outs=outs)


def test_writes_of_results_are_counted_and_freed_storages_refused() -> None:
    torch = pytest.importorskip("torch")
    a, b, c, _ = _operands(torch.from_numpy, _SIZES[:4])
    outs = [torch.zeros_like(item) for item in c]
    grouped(a, b, outs=outs)
    versions = [item._version for item in outs]
    grouped(a[::-1], b[::-1], outs=outs[::-1])
    assert [item._version for item in outs] == [version + 1 for version in versions]
    a[1] = a[1].clone()
    a[1].untyped_storage().resize_(4)
    with pytest.raises(kronop.ArgumentError, match="storage was resized"):
        grouped(a, b, outs=outs)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composed_api, "_MOST_PARTS", 6)
    for rows in range(1, 20):
        a, b = _drawn(lambda array: array, (rows, 3), (3, 2))
        _equal(grouped([a, a], [b, b]), [a @ b] * 2)
    assert sum(map(len, composed_api._parts.values())) <= 7


class _Scratch:
    """Memory that is followed by bytes which nobody may write."""

    def __init__(self, nbytes: int) -> None:
        self.memory, self.nbytes = np.full(nbytes + 4096, 90, np.uint8), nbytes
        self.pointer = self.memory.ctypes.data


@pytest.mark.parametrize("least", [1, 1 << 18])
@pytest.mark.parametrize("threads", [1, 3, 7])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_share_the_work_of_all_products(
    monkeypatch: pytest.MonkeyPatch, least: int, threads: int, dtype: str
) -> None:
    """Also where they are more than a launch takes, and beside those that are cut along K."""
    torch = pytest.importorskip("torch")
    given: list[_Scratch] = []
    monkeypatch.setattr(planning, "OPERATIONS_PER_THREAD", least)
    monkeypatch.setattr(host, "borrow", lambda nbytes: given.append(_Scratch(nbytes)) or given[-1])
    monkeypatch.setattr(host, "give_back", lambda memory: None)
    cutting.cut.cache_clear()
    sizes = [(2, 3, 5000), (300, 200, 130), *[(64, 30, 64), (1, 50, 9), (33, 1, 20)] * 25]
    a, b, _, _ = _operands(lambda x: torch.from_numpy(x).to(getattr(torch, dtype)), sizes)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = grouped(a, b)
    finally:
        torch.set_num_threads(before)
        cutting.cut.cache_clear()
    for x, y, z in zip(a, b, found, strict=True):
        assert torch.equal(z, (x.double() @ y.double()).to(z.dtype))
    (scratch,) = given
    assert (scratch.memory[scratch.nbytes :] == 90).all()
