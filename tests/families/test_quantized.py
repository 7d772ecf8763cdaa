"""Quantized Kronecker products on this machine, bit for bit as their definition says."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kronop
from kronop.__main__ import main
from kronop.families.quantized.api import quantized_arguments
from kronop.families.quantized.description import EPILOGUE, Y
from tests import support

_TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
_UNIT = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "float32": 2.0**-25}


def whole(random: np.random.Generator, shape: tuple[int, ...], kind: Any, most: int = 3) -> Any:
    """Integers so small that products are exact."""
    return random.integers(-most, most + 1, shape).astype(kind)


def identity(size: int, kind: Any = np.float32) -> Any:
    return np.eye(size).astype(kind)


def expected(x: Any, factors: list[Any], bits: int, clip: float = 1.0) -> tuple[Any, Any]:
    """The definition, with q of the type that users get."""
    what = quantized_arguments(x, factors, bits).operation.description
    q, scales = what.quantized(what.product.reference(x, factors), clip)
    return (q.view(np.uint8) if bits == 4 else q), scales


def check(x: Any, factors: list[Any], bits: int, clip: float = 1.0) -> None:
    q, scales = kronop.quantized_gemkm(x, factors, bits=bits, clip=clip)
    for found, want in zip((q, scales), expected(x, factors, bits, clip), strict=True):
        assert found.dtype == want.dtype
        assert np.array_equal(found, want, equal_nan=found.dtype.kind == "f")


def unpacked(q: Any, bits: int) -> Any:
    """The integers of a result."""
    if bits == 8:
        return q.astype(np.int64)
    low, high = (q << 4).view(np.int8) >> 4, q.view(np.int8) >> 4
    return np.stack([low, high], -1).reshape(*q.shape[:-1], -1).astype(np.int64)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("name", _TYPES)
def test_integers_are_exact(name: str, bits: int) -> None:
    """One kernel for any number of rows, any batch and any strides."""
    kind = _TYPES[name]

    @settings(deadline=None, max_examples=15)
    @given(st.integers(0, 70), st.sampled_from([1.0, 0.9, 1e-3]), st.booleans())
    def any_size(rows: int, clip: float, turned: bool) -> None:
        random = np.random.default_rng(rows)
        x, factors = whole(random, (rows, 12), kind), [whole(random, (4, 2), kind)]
        factors.append(whole(random, (3, 5), kind))
        check(np.asfortranarray(x) if turned else x, factors, bits, clip)

    any_size()


def test_new_results_lie_in_rows_whatever_is_described() -> None:
    random = np.random.default_rng(0)
    x, factors = whole(random, (3, 16), np.float32), [whole(random, (4, 4), np.float32)] * 2
    matrix = kronop.TensorDescription(kronop.float32)
    result = kronop.TensorDescription(kronop.int8, kronop.ColumnMajor)
    described = (matrix, matrix, result, EPILOGUE, ((4, 4), (4, 4)))
    operation = kronop.QuantizedKronOperation("x86", None, *described, bits=8)
    arguments = kronop.QuantizedKronArguments(operation=operation, X=x, factors=factors)
    operation.run(arguments)
    for found, want in zip(arguments.results, expected(x, factors, 8), strict=True):
        assert np.array_equal(found, want)


def test_batches_broadcast() -> None:
    random = np.random.default_rng(0)
    x = whole(random, (3, 1, 5, 12), np.float16)
    factors = [whole(random, (2, 4, 2), np.float16), whole(random, (3, 5), np.float16)]
    q, scales = kronop.quantized_gemkm(x, factors, bits=4)
    assert (q.shape, scales.shape) == ((3, 2, 5, 5), (3, 2, 5, 1))
    check(x, factors, 4)
    check(x.transpose(2, 1, 0, 3), [np.asfortranarray(factors[0]), factors[1]], 4)
    row, one = [factors[0][0], factors[1]], x[0, 0, :1]
    q, scales = kronop.quantized_gemkm(one[0], row, bits=4)  # A vector has one scale.
    assert (q.shape, scales.shape) == ((5,), (1,))
    wanted = expected(one, row, 4)
    assert np.array_equal(q[None], wanted[0])
    assert np.array_equal(scales[None], wanted[1])


@pytest.mark.parametrize("bits", [4, 8])
def test_a_vector_has_a_row_for_each_matrix_of_a_batch(bits: int) -> None:
    random = np.random.default_rng(4)
    x, last = whole(random, (12,), np.float16), whole(random, (3, 5), np.float16)
    first = whole(random, (2, 4, 2), np.float16)
    parts = [expected(x[None], [item, last], bits) for item in first]
    q, scales = (np.concatenate(item) for item in zip(*parts, strict=True))
    assert q.shape[:-1] + kronop.gemkm(x, [first, last]).shape[-1:] == (2, 10)
    arguments = quantized_arguments(x, [first, last], bits)
    arguments.operation.run(arguments)
    assert np.array_equal(arguments.Y, q.view(np.int8))
    assert np.array_equal(arguments.scales, scales)
    for _ in range(4):  # From the third call on it is repeated.
        for out in (None, (np.empty_like(q), np.empty_like(scales))):
            found = kronop.quantized_gemkm(x, [first, last], bits=bits, out=out)
            assert np.array_equal(found[0], q)
            assert np.array_equal(found[1], scales)


@pytest.mark.parametrize("bits", [4, 8])
def test_ties_go_to_even_and_all_integers_occur(bits: int) -> None:
    top = 2 ** (bits - 1) - 1
    halves = np.arange(-2 * top, 2 * top + 1, dtype=np.float32) / 2
    row = np.append(halves, np.float32(0))[None] * np.float32(2.0**-20)
    factors = [identity(row.shape[1])]
    q, scales = kronop.quantized_gemkm(row, factors, bits=bits)
    assert scales.tolist() == [[2.0**-20]]
    assert unpacked(q, bits)[0, :-1].tolist() == np.rint(halves).tolist()
    # What is clipped off saturates: one further below 0 than above.
    q, scales = kronop.quantized_gemkm(row, factors, bits=bits, clip=0.5)
    assert scales.tolist() == [[2.0**-21]]
    assert (unpacked(q, bits).min(), unpacked(q, bits).max()) == (-top - 1, top)


def test_even_columns_are_in_low_halves() -> None:
    x = np.array([[7, -7, 1, -1]], np.float32)
    q, scales = kronop.quantized_gemkm(x, [identity(4)], bits=4)
    assert (q.tolist(), scales.tolist()) == ([[0x97, 0xF1]], [[1.0]])


@pytest.mark.parametrize("name", _TYPES)
def test_rows_without_a_scale(name: str) -> None:
    """Zeros, and numbers so small that the scale has no inverse; infinities and NaN."""
    kind = _TYPES[name]
    x = np.ones((6, 4), kind)
    x[0], x[2, 1], x[3, 0], x[4, 3] = 0, np.nan, np.inf, -np.inf
    x[5] = 0
    x[5, 2] = 0 if name == "float16" else 2.0**-95
    with np.errstate(invalid="ignore"):
        q, scales = kronop.quantized_gemkm(x, [identity(4, kind)], bits=8)
    assert not q[[0, 2, 3, 4, 5]].any()
    assert scales[[0, 5]].tolist() == [[1.0], [1.0]]
    assert np.isnan(scales[2:5]).all()
    assert q[1].tolist() == [127] * 4


def test_subnormal_halves_have_a_scale() -> None:
    x = (np.arange(-3, 5) * 2.0**-24).astype(np.float16)[None]
    q, scales = kronop.quantized_gemkm(x, [identity(8, np.float16)], bits=4)
    assert scales.item() == np.float32(2.0**-22) / np.float32(7)
    # 4 / 7 is rounded up, so that 2 / (4 / 7) is a little less than 3.5.
    assert unpacked(q, 4).tolist() == [[-5, -3, -2, 0, 2, 3, 5, 7]]


@pytest.mark.parametrize("name", _TYPES)
def test_random_rows_are_within_a_quantum(name: str) -> None:
    """q S is half a scale from what is rounded, which is as far from the product as sums of
    rounded terms are; clipping takes nothing off."""
    random, kind = np.random.default_rng(1), _TYPES[name]
    x = random.standard_normal((9, 48)).astype(kind)
    factors = [random.standard_normal(shape).astype(kind) for shape in ((6, 4), (8, 10))]
    q, scales = kronop.quantized_gemkm(x, factors, bits=8)
    wide = [item.astype(np.float64) for item in (x, *factors)]
    sizes = np.abs(wide[0]) @ np.kron(np.abs(wide[1]), np.abs(wide[2]))
    # Rounded: both products' results, and about 20 operations of float32.
    bound = 0.5 * scales * (1 + 2.0**-20) + (3 * _UNIT[name] + 20 * 2.0**-24) * sizes
    product = wide[0] @ np.kron(wide[1], wide[2])
    assert (np.abs(unpacked(q, 8) * scales.astype(np.float64) - product) <= bound).all()


@pytest.mark.parametrize("rows", [0, 1])
def test_results_have_types_and_shapes(rows: int) -> None:
    x = np.ones((2, rows, 6), np.float16)
    for bits, kind, columns in ((4, np.uint8, 4), (8, np.int8, 8)):
        q, scales = kronop.quantized_gemkm(
            x, [np.ones((2, 4), np.float16), np.ones((3, 2), np.float16)], bits=bits
        )
        assert (q.shape, q.dtype) == ((2, rows, columns), kind)
        assert (scales.shape, scales.dtype) == ((2, rows, 1), np.float32)


def test_results_go_where_they_are_wanted() -> None:
    random = np.random.default_rng(2)
    for index in range(4):  # From the third call on it is repeated.
        x, factors = whole(random, (5, 8), np.float16), [whole(random, (8, 6), np.float16)]
        out = np.full((5, 3), 77, np.uint8), np.full((5, 1), np.nan, np.float32)
        assert kronop.quantized_gemkm(x, factors, bits=4, out=out) is out, index
        for found, want in zip(out, expected(x, factors, 4), strict=True):
            assert np.array_equal(found, want)


_X, _F = np.ones((3, 4), np.float16), np.ones((4, 3), np.float16)
_Q, _S = np.zeros((3, 3), np.int8), np.zeros((3, 1), np.float32)
_OF_X = _X.view(np.int8).reshape(-1)[:9].reshape(3, 3)


def _read_only(array: Any) -> Any:
    fixed = array.copy()
    fixed.flags.writeable = False
    return fixed


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, np.array])
def test_the_least_clip_is_taken_of_any_type(kind: Any) -> None:
    x, factors = whole(np.random.default_rng(3), (2, 4), np.float32), [identity(4)]
    wanted = expected(x, factors, 8, 1e-6)
    for found, want in zip(
        kronop.quantized_gemkm(x, factors, bits=8, clip=kind(1e-6)), wanted, strict=True
    ):
        assert np.array_equal(found, want)
    with pytest.raises(kronop.ArgumentError, match="clip: expected"):
        kronop.quantized_gemkm(x, factors, bits=8, clip=kind(0.9e-6))


@pytest.mark.parametrize(
    ("error", "message", "changes"),
    [
        (kronop.ArgumentError, "bits: expected 4 or 8", {"bits": 5}),
        (kronop.ArgumentError, "bits: expected 4 or 8", {"bits": 4.0}),
        (kronop.ArgumentError, "even number", {"bits": 4}),
        (kronop.ArgumentError, "clip: expected", {"clip": 0}),
        (kronop.ArgumentError, "clip: expected", {"clip": 1.5}),
        (kronop.ElementTypeError, "clip: expected", {"clip": "no"}),
        (kronop.ElementTypeError, "element type of X", {"x": _X.astype(np.int8)}),
        (kronop.ElementTypeError, "element type of X", {"x": _X.astype(np.float64)}),
        (kronop.ElementTypeError, r"factors\[0\]", {"factors": [_F.astype(np.float32)]}),
        (kronop.ElementTypeError, "wrap a single factor", {"factors": _F}),
        (kronop.ArgumentError, "at least one factor", {"factors": [], "bits": 4}),
        (kronop.ArgumentError, "at least one factor", {"factors": []}),
        (kronop.ArgumentError, "shape of X", {"x": _X[:, :3]}),
        (kronop.ArgumentError, "shape of X", {"x": np.ones((), np.float16)}),
        (kronop.ArgumentError, r"factors\[1\]: expected \(..., P, Q\)", {"factors": [_F, _F[0]]}),
        (kronop.ElementTypeError, r"out: expected \(q, scales\)", {"out": _Q}),
        (kronop.ElementTypeError, r"\(q, scales\), got a tuple of .*None", {"out": (_Q, None)}),
        (kronop.ElementTypeError, r"\(q, scales\), got a list of None", {"out": [None, _S]}),
        (kronop.ElementTypeError, "element type of q", {"out": (_Q.view(np.uint8), _S)}),
        (kronop.ElementTypeError, "element type of q", {"out": (_Q, _S), "bits": 4}),
        (kronop.ArgumentError, "q: expected shape", {"out": (_Q[:2], _S)}),
        (kronop.ArgumentError, "memory of q", {"out": (np.zeros((3, 6), np.int8)[:, ::2], _S)}),
        (kronop.ArgumentError, "q: expected a writable", {"out": (_read_only(_Q), _S)}),
        (
            kronop.ArgumentError,
            "q and X: expected separate",
            {"out": (_OF_X, _S)},
        ),
        (kronop.ArgumentError, "scales: expected shape", {"out": (_Q, _S[:2])}),
        (kronop.ElementTypeError, "element type of scales", {"out": (_Q, _S.astype(np.float16))}),
        (kronop.ArgumentError, "scales: expected a writable", {"out": (_Q, _read_only(_S))}),
        (kronop.ArgumentError, "scales and q: expected separate memory", {}),
    ],
)
def test_refusals(error: type[Exception], message: str, changes: dict[str, Any]) -> None:
    if not changes:
        memory = np.zeros(24, np.uint8)
        q = memory[:9].view(np.int8).reshape(3, 3)
        changes = {"out": (q, memory[:12].view(np.float32)[:, None])}
    given = {"x": _X, "factors": [_F], "bits": 8, **changes}
    with pytest.raises(error, match=message):
        kronop.quantized_gemkm(given.pop("x"), given.pop("factors"), **given)


def test_descriptions_refuse_what_has_no_kernel() -> None:
    tensor = kronop.TensorDescription(kronop.float16)
    plain = support.linear(kronop.float16)
    for changes in (
        {"bits": 5},
        {"bits": 4, "factors": [(3, 3)]},
        {"side": kronop.Side.Left},
        {"Y": tensor, "epilogue_functor": plain},
    ):
        given = {"X": tensor, "F": tensor, "Y": Y, "epilogue_functor": EPILOGUE}
        with pytest.raises(kronop.DescriptionError):
            kronop.QuantizedKronOperation(
                "x86", None, **{**given, "factors": [(3, 4)], "bits": 8, **changes}
            )


def test_sizes_are_those_of_bytes() -> None:
    tensor = kronop.TensorDescription(kronop.bfloat16)
    operation = kronop.QuantizedKronOperation(
        "sm_90a", None, tensor, tensor, Y, EPILOGUE, [(64, 64)] * 2, bits=4
    )
    sizes = operation.sizes(10)
    assert (sizes.y_shape, sizes.y_bytes, sizes.workspace_bytes) == ((10, 2048), 20480, 0)


def test_plans_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    for shape, steps in (("64^2", 1), ("64,128", 1), ("8^4", 1), ("4096x64", 2)):
        command = ["show", "quantized", shape, "--dtype", "bfloat16", "--target", "sm_90a"]
        assert main([*command, "--bits", "4"]) == 0
        text = capsys.readouterr().out
        assert f"{steps} step" in text
        assert ("quantized_pair" in text) == (steps == 1)


def test_plans_are_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "quantized", "8", "--rows", "4"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("QuantizedKronOperation(")
    assert "quantized_rows_f32_8_s4" in first
    assert "the planner's choice ranks" in last
