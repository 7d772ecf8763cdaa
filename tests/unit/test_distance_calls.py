"""cdist, kernel_matrix and run_kernel on plain tensors, on this machine's CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import kernels
from kronop.descriptions.strided import Strided
from kronop.families.distance import reduce_api
from kronop.families.distance.description import DistanceProblem
from kronop.families.distance.form import Form
from kronop.families.distance.x86 import select_design

_RANDOM = np.random.default_rng(20)
_X, _Y = _RANDOM.standard_normal((7, 5)), _RANDOM.standard_normal((6, 5))
_D = _X[:, None] - _Y
_SQUARE, _ABSOLUTE = (_D**2).sum(-1), np.abs(_D).sum(-1)
_DOT = _X @ _Y.T
_R = np.sqrt(_SQUARE)
_ARD = np.linspace(0.5, 2, 5)
_EXPECTED: dict[str, tuple[kernels.Kernel, Any]] = {
    "gaussian": (kernels.Gaussian(0.7), np.exp(-_SQUARE / (2 * 0.49))),
    "ard": (kernels.Gaussian(_ARD), np.exp(-((_D / _ARD) ** 2).sum(-1) / 2)),
    "laplace": (kernels.Laplace(0.7), np.exp(-_ABSOLUTE / 0.7)),
    "laplace of norm 2": (kernels.Laplace(0.7, norm=2), np.exp(-_R / 0.7)),
    "matern 1/2": (kernels.Matern(0.5, 0.7), np.exp(-_R / 0.7)),
    "matern 3/2": (
        kernels.Matern(1.5, 2.0),
        (1 + np.sqrt(3) * _R / 2) * np.exp(-np.sqrt(3) * _R / 2),
    ),
    "matern 5/2": (
        kernels.Matern(2.5, 2.0),
        (1 + np.sqrt(5) * _R / 2 + 5 * _SQUARE / 12) * np.exp(-np.sqrt(5) * _R / 2),
    ),
    "rational quadratic": (
        kernels.RationalQuadratic(1.5, 0.7),
        (1 + _SQUARE / (2 * 1.5 * 0.49)) ** -1.5,
    ),
    "power norm": (kernels.PowerNorm(1.3, root=False), (np.abs(_D) ** 1.3).sum(-1)),
    "linear": (kernels.Linear(), _DOT),
    "polynomial": (kernels.Polynomial(5, 0.5), (_DOT + 0.5) ** 5),
    "cosine": (
        kernels.Cosine(),
        _DOT / np.linalg.norm(_X, axis=1)[:, None] / np.linalg.norm(_Y, axis=1),
    ),
    "composite": (
        2 * kernels.Gaussian(0.7) * kernels.Linear() + kernels.Laplace(0.7) * 3,
        2 * np.exp(-_SQUARE / 0.98) * _DOT + 3 * np.exp(-_ABSOLUTE / 0.7),
    ),
}


@pytest.mark.parametrize("name", _EXPECTED)
def test_kernels_are_their_formulas(name: str) -> None:
    kernel, expected = _EXPECTED[name]
    found = kronop.kernel_matrix(_X, _Y, kernel)
    # Sums of 5 terms and some functions of them; arguments of exp are up to 50.
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", _EXPECTED)
def test_forms_are_text_and_have_derivatives(name: str) -> None:
    form = _EXPECTED[name][0].bound().form
    assert Form.from_text(form.text()) == form
    at = {f"s[{i}]": 1.3 + 0.2 * i for i in range(len(form.terms))}
    at |= {f"h[{j}]": 0.9 + 0.1 * j for j in range(form.values)}
    for key in at:
        slope, step = form.expression.derivative(key), 1e-6
        ends = [form.expression.evaluate(at | {key: at[key] + way}) for way in (step, -step)]
        expected = (ends[0] - ends[1]) / (2 * step)
        found = 0.0 if slope is None else slope.evaluate(at)
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-8), key


def test_a_term_is_summed_once() -> None:
    kernel = kernels.Gaussian(0.7) + kernels.Matern(1.5, 0.7) * kernels.RationalQuadratic(1, 2)
    assert len(kernel.bound().form.terms) == 1


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.3, 1.5, 2, 2.5, 3, 4, 7, float("inf")])
def test_distances_of_all_norms(p: float) -> None:
    size = np.abs(_D)
    expected = {
        0: (size != 0).sum(-1),
        float("inf"): size.max(-1),
    }.get(p, (size**p).sum(-1) ** (1 / p) if 0 < p < float("inf") else None)
    np.testing.assert_allclose(kronop.cdist(_X, _Y, p), expected, rtol=1e-13)
    raised = kronop.cdist(_X, _Y, p, skip_epilogue=True)
    again = kronop.cdist(_X, _Y, p)
    if 0 < p < float("inf"):
        np.testing.assert_allclose(raised, expected**p, rtol=1e-13)
    # A call leaves no trace in later ones.
    np.testing.assert_allclose(again, expected, rtol=1e-13)
    assert (np.diagonal(kronop.cdist(_X, _X.copy(), p)) == 0).all()


def test_regularization_is_added_on_the_diagonal() -> None:
    plain = kronop.kernel_matrix(_X, _Y, kernels.Gaussian(0.7))
    found = kronop.kernel_matrix(_X, _Y, kernels.Gaussian(0.7), regularization=0.25)
    np.testing.assert_allclose(found - plain, 0.25 * np.eye(7, 6), atol=1e-15)


def test_values_broadcast_over_the_batch() -> None:
    points = _RANDOM.standard_normal((2, 3, 7, 5))
    widths, p = np.array([[0.5], [2.0]]), np.array([1.3, 2.0, 2.5])
    found = kronop.kernel_matrix(points, _Y, kernels.Gaussian(widths), regularization=p)
    powers = kronop.cdist(points, _Y, p)
    for i, j in np.ndindex(2, 3):
        kernel = kernels.Gaussian(widths[i, 0])
        one = kronop.kernel_matrix(points[i, j], _Y, kernel, regularization=p[j])
        np.testing.assert_allclose(found[i, j], one, rtol=1e-14)
        np.testing.assert_allclose(powers[i, j], kronop.cdist(points[i, j], _Y, p[j]), rtol=1e-13)


def test_repeated_calls_read_new_values() -> None:
    for width in (0.5, 0.5, 0.5, 0.7, np.array([0.9]), np.array([1.1]), np.array([1.3])):
        found = kronop.kernel_matrix(_X[None], _Y, kernels.Gaussian(width))[0]
        np.testing.assert_allclose(found, np.exp(-_SQUARE / (2 * width**2)), rtol=1e-13)
    for shift in range(4):  # Points of their own, then the same points twice.
        x = _X + shift
        np.testing.assert_allclose(kronop.cdist(x, x - 1, 1)[0, 0], 5, rtol=1e-13)
        assert kronop.cdist(x, x, 1)[2, 2] == 0


def test_strides_and_results_of_the_caller() -> None:
    expected = kronop.cdist(_X, _Y, 1)
    out = np.full((6, 7), np.nan).T
    assert kronop.cdist(_X.T.copy().T, _Y[::-1].copy()[::-1], 1, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert kronop.cdist(_X[:0], _Y).shape == (0, 6)
    assert kronop.cdist(_X, _Y[:0]).shape == (7, 0)
    assert kronop.cdist(_X[None][:0], _Y).shape == (0, 7, 6)
    assert (kronop.cdist(_X[:, :0], _Y[:, :0]) == np.zeros((7, 6))).all()


def _descriptor(inner: str, outer: str = "NOOP", kind: str = "NONE", operator: str = "DIFF") -> Any:
    return kronop.KernelDescriptor(
        inner_operator=kronop.InnerOperator[operator],
        inner_power=kronop.PowerType[inner],
        outer_power=kronop.PowerType[outer],
        kernel_type=kronop.KernelType[kind],
    )


def test_descriptors_are_the_kernels_that_they_say() -> None:
    run = kronop.run_kernel
    p_norm = _descriptor("POW", "POW")
    np.testing.assert_allclose(run(p_norm, _X, _Y, p=1.3), kronop.cdist(_X, _Y, 1.3), rtol=1e-14)
    found = run(p_norm, _X, _Y, inner_p=1.3, outer_p=2.0)
    np.testing.assert_allclose(found, kronop.cdist(_X, _Y, 1.3) ** 2.6, rtol=1e-13)
    np.testing.assert_allclose(run(_descriptor("SQUARE", "SQRT"), _X, _Y), _R, rtol=1e-14)
    product = _descriptor("NOOP", "SQUARE", operator="DOT")
    np.testing.assert_allclose(run(product, _X, _Y), _DOT**2, rtol=1e-13)
    gaussian = _descriptor("SQUARE", kind="GAUSSIAN")
    found = run(gaussian, _X, _Y, bandwidth=0.7, epsilon=4.0)
    expected = np.exp(-np.where(_SQUARE < 4, 0, _SQUARE) / 0.98)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    shifted = run(
        gaussian, _X, _Y, bandwidth=0.7, epsilon=4.0, regularization=0.5, regularization_offset_x=2
    )
    np.testing.assert_allclose(shifted - found, 0.5 * np.eye(7, 6, 2), atol=1e-15)


def test_kermacs_own_descriptors_are_there() -> None:
    for name, expected in {
        "l1_norm": _descriptor("ABS"),
        "l2_norm": _descriptor("SQUARE", "SQRT"),
        "p_norm": _descriptor("POW", "POW"),
        "laplace_l1": _descriptor("ABS", kind="LAPLACE"),
        "laplace_l2": _descriptor("SQUARE", "SQRT", kind="LAPLACE"),
        "mma": _descriptor("NOOP", operator="DOT"),
    }.items():
        assert getattr(kronop, f"kernel_descriptor_{name}") == expected


def _operation(layout: Any = kronop.RowMajor) -> Any:
    points = kronop.TensorDescription(kronop.float64)
    Y = kronop.TensorDescription(kronop.float64, layout)
    epilogue = kronop.LinearCombination(kronop.float64, 1, kronop.float64, kronop.float64)
    return kronop.DistanceOperation("x86", None, points, points, Y, epilogue, kernels.Linear())


def test_a_new_result_lies_as_described() -> None:
    arguments = kronop.DistanceArguments(operation=_operation(kronop.ColumnMajor), X1=_X, X2=_Y)
    assert arguments.Y.shape == (7, 6)
    assert arguments.Y.T.flags.c_contiguous
    arguments.operation.run(arguments)
    np.testing.assert_allclose(arguments.Y, _DOT, rtol=1e-13)


_REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "K": (lambda: kronop.cdist(_X, _Y[:, :3]), "features of X2: expected 5"),
    "p < 0": (lambda: kronop.cdist(_X, _Y, -1), "p: expected a number of at least 0"),
    "p is NaN": (lambda: kronop.cdist(_X, _Y, float("nan")), "p: expected"),
    "bandwidth": (
        lambda: kernels.Gaussian(float("nan")),
        "expected finite numbers above 0",
    ),
    "bandwidths": (
        lambda: kernels.Gaussian([1.0, 0.0]),
        "expected finite numbers above 0",
    ),
    "how many": (
        lambda: kronop.kernel_matrix(_X, _Y, kernels.Gaussian([1.0] * 4)),
        "bandwidths per feature: expected 5 or 1",
    ),
    "broadcast": (
        lambda: kronop.cdist(np.zeros((2, 7, 5)), np.zeros((3, 6, 5))),
        "leading dimensions of X2",
    ),
    "vector": (lambda: kronop.cdist(_X[0], _Y), "X1: expected at least two dimensions"),
    "integers": (lambda: kronop.cdist(np.zeros((2, 3), int), np.zeros((2, 3), int)), "float"),
    "complex": (
        lambda: kronop.cdist(_X, _Y + 0j),
        "X2.*got complex128; complex points are not supported.*join x2.real and x2.imag",
    ),
    "types": (lambda: kronop.cdist(_X, _Y.astype(np.float32)), "X2"),
    "out": (lambda: kronop.cdist(_X, _Y, out=_X), "shape of Y: expected"),
    "mode": (lambda: kronop.cdist(_X, _Y, compute_mode="fast"), "compute_mode: expected one of"),
    "kernel": (lambda: kronop.kernel_matrix(_X, _Y, "gaussian"), "one of kronop.kernels"),
    "nu": (lambda: kernels.Matern(1.0, 1.0), "nu: expected 0.5, 1.5 or 2.5"),
    "no bandwidth": (
        lambda: kronop.run_kernel(_descriptor("ABS", kind="LAPLACE"), _X, _Y),
        "bandwidth: expected a number",
    ),
    "bandwidth of nothing": (
        lambda: kronop.run_kernel(_descriptor("ABS"), _X, _Y, bandwidth=1.0),
        "bandwidth: expected none",
    ),
    "vector beside a batch": (
        lambda: kronop.kernel_matmul(_X[None], _Y, np.zeros(6), kernels.Linear()),
        "v: expected",
    ),
    "no points": (
        lambda: kronop.DistanceArguments(operation=_operation(), X1=None, X2=_Y),
        "X1: expected",
    ),
    "power 0": (
        lambda: kronop.run_kernel(_descriptor("POW", "POW"), _X, _Y, p=0),
        "p: expected finite numbers above 0",
    ),
    "regularization": (
        lambda: kronop.kernel_matrix(_X, _Y, kernels.Linear(), float("nan")),
        "regularization: expected",
    ),
    "powers of products": (lambda: _descriptor("ABS", operator="DOT"), "expected NOOP"),
    "p without POW": (lambda: kronop.run_kernel(_descriptor("ABS"), _X, _Y, p=1.0), "p: expected"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    call, message = _REFUSED[case]
    with pytest.raises(kronop.errors.KronopError, match=message):
        call()


_TYPED = kronop.ElementTypeError
_NO_VALUES: dict[str, tuple[Any, type[Exception]]] = {
    "NaN": (float("nan"), kronop.ArgumentError),
    "NaN of NumPy": (np.float32("nan"), kronop.ArgumentError),
    "negative": (-1.0, kronop.ArgumentError),
    "too large": (10**400, kronop.ArgumentError),
    "no numbers": ([], kronop.ArgumentError),
    "NaN in a list": ([1.0, float("nan")], kronop.ArgumentError),
    "complex": (1j, _TYPED),
    "bool": (True, _TYPED),
    "string": ("2", _TYPED),
    "None": (None, _TYPED),
    "strings": (["2"], _TYPED),
    "nested": ([[1.0], [2.0, 3.0]], _TYPED),
    "complex in a list": ([1j], _TYPED),
    "bools": ([True, True], _TYPED),
    "array of complex": (np.array([1j]), _TYPED),
    "array of bools": (np.array([True]), _TYPED),
    "array of objects": (np.array([None]), _TYPED),
    "NaN in an array": (np.array([[1.0, float("nan")]]), kronop.ArgumentError),
    "negative in an array": (np.array([1, -1]), kronop.ArgumentError),
    "infinity in an array": (np.array([1.0, float("inf")]), kronop.ArgumentError),
    "zero in an array": (np.array(0.0), kronop.ArgumentError),
}


@pytest.mark.parametrize("case", _NO_VALUES)
def test_what_is_no_value_is_refused(case: str) -> None:
    value, error = _NO_VALUES[case]
    of_p: list[Callable[[], Any]] = [lambda: kernels.PowerNorm(value)]
    if not isinstance(value, list):
        of_p.append(
            lambda: kronop.cdist_grad(np.ones((5, 5)), _X.T[:, :5], None, _X.T[:, :5], value)
        )
    for call in of_p:
        with pytest.raises(error, match=r"p: expected .*, got .*; "):
            call()
    for make in (kernels.Gaussian, kernels.Laplace, lambda l: kernels.RationalQuadratic(1.0, l)):
        with pytest.raises(error, match=r"bandwidth: expected .*, got .*; "):
            make(value)


def test_a_bandwidth_of_zero_is_refused() -> None:
    for value in (0, 0.0, np.float32(0), [1.0, 0.0]):
        with pytest.raises(kronop.ArgumentError, match="expected finite numbers above 0, got"):
            kernels.Gaussian(value)


_NO_CHOICES: dict[str, Any] = {
    "array": np.array([0.5, 1.5]),
    "array of one": np.array(2),
    "list": [1],
    "string": "1",
    "bool": True,
    "None": None,
    "complex": 1 + 0j,
    "too large": 10**400,
    "another": 7.5,
}


@pytest.mark.parametrize("case", _NO_CHOICES)
def test_what_is_compiled_is_no_tensor(case: str) -> None:
    value = _NO_CHOICES[case]
    with pytest.raises(kronop.ArgumentError, match=r"nu: expected 0\.5, 1\.5 or 2\.5, got"):
        kernels.Matern(value, 1.0)
    with pytest.raises(kronop.ArgumentError, match="norm: expected 1 or 2, got"):
        kernels.Laplace(1.0, value)
    if case != "too large":
        with pytest.raises(kronop.ArgumentError, match="degree: expected a positive integer, got"):
            kernels.Polynomial(value)
    if case != "bool":
        with pytest.raises(kronop.ElementTypeError, match="root: expected True or False"):
            kernels.PowerNorm(2.0, value)
    with pytest.raises(kronop.ArgumentError, match="compute_mode: expected one of"):
        kronop.cdist(_X, _Y, compute_mode=value)
    with pytest.raises(kronop.ArgumentError, match="reduction: expected one of"):
        kronop.kernel_reduce(_X, _Y, kernels.Linear(), value)


def test_tensors_of_torch_are_no_choices() -> None:
    torch = pytest.importorskip("torch")
    for value in (torch.tensor(0.5), torch.tensor([1, 2])):
        with pytest.raises(kronop.ArgumentError, match="nu: expected"):
            kernels.Matern(value, 1.0)
        with pytest.raises(kronop.ArgumentError, match="norm: expected"):
            kernels.Laplace(1.0, value)


def test_numbers_of_numpy_are_choices() -> None:
    for kernel, other in (
        (kernels.Matern(np.float32(1.5), 2.0), kernels.Matern(1.5, 2.0)),
        (kernels.Laplace(2.0, np.int64(2)), kernels.Laplace(2.0, 2)),
    ):
        assert kernel.bound().form.text() == other.bound().form.text()


@pytest.mark.parametrize("value", [1.5, "1", [1]])
def test_what_counts_is_an_integer(value: Any) -> None:
    with pytest.raises(
        kronop.ArgumentError, match="k: expected an integer from 1 to 6, the points of x2, got"
    ):
        kronop.kernel_reduce(_X, _Y, kernels.Linear(), "topk", k=value)
    with pytest.raises(kronop.ElementTypeError, match="largest: expected True or False"):
        kronop.kernel_reduce(_X, _Y, kernels.Linear(), "topk", largest=value)
    with pytest.raises(kronop.ArgumentError, match="diagonal: expected an integer"):
        kronop.DistanceArguments(operation=_operation(), X1=_X, X2=_Y, diagonal=value)
    with pytest.raises(kronop.ArgumentError, match="offset_y: expected an integer"):
        kronop.run_kernel(_descriptor("ABS"), _X, _Y, regularization_offset_y=value)


def test_overlapping_results_are_refused() -> None:
    memory = np.zeros((7, 12))
    with pytest.raises(kronop.ArgumentError, match="overlap"):
        kronop.cdist(memory[:, :5], _Y, out=memory[:, 4:10])


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("most", [64, 0])  # By kronop's own kernel, and by the framework.
@pytest.mark.parametrize("cells", [3 * 6, 4])  # Three rows at a time; four columns of a row.
def test_reductions_need_no_matrix(
    framework: str, most: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce_api, "_TILE_BYTES", {True: 8 * cells})
    monkeypatch.setattr(select_design, "MOST", most)
    x, y, kernel = _X, _Y, kernels.PowerNorm(2)
    if framework == "torch":
        torch = pytest.importorskip("torch")
        x, y = torch.from_numpy(x), torch.from_numpy(y)

    def reduce(*arguments: Any) -> Any:
        return kronop.kernel_reduce(x, y, kernel, *arguments)

    order = _R.argsort(-1)
    np.testing.assert_allclose(reduce("logsumexp"), np.log(np.exp(_R).sum(-1)), rtol=1e-14)
    np.testing.assert_allclose(reduce("max"), _R.max(-1), rtol=1e-14)
    np.testing.assert_allclose(reduce("min"), _R.min(-1), rtol=1e-14)
    np.testing.assert_array_equal(reduce("argmin"), order[:, 0])
    np.testing.assert_array_equal(reduce("argmax"), order[:, -1])
    for largest, chosen in ((False, order[:, :4]), (True, order[:, :-5:-1])):
        values, indices = reduce("topk", 4, largest)
        np.testing.assert_array_equal(indices, chosen)
        np.testing.assert_allclose(values, np.take_along_axis(_R, chosen, -1), rtol=1e-14)
    assert kronop.kernel_reduce(x[:0], y, kernel, "max").shape == (0,)
    with pytest.raises(kronop.ArgumentError, match="k: expected an integer from 1 to 6"):
        reduce("topk", 7)
    with pytest.raises(kronop.ArgumentError, match="reduction: expected one of"):
        reduce("mean")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_nan_comes_through_reductions(framework: str, dtype: str) -> None:
    x, y = _X.astype(dtype), _Y.astype(dtype)
    y[4, 2] = np.nan
    check_reductions_of_nan(x, y, 4, framework)


def check_reductions_of_nan(
    x: Any, y: Any, place: int, framework: str, device: str = "cpu"
) -> None:
    """That point `place` of y, of which a feature is NaN, is what all reductions find."""
    others = [_moved(item, framework, device) for item in (x, y)]

    def reduce(*arguments: Any) -> Any:
        found = kronop.kernel_reduce(*others, kernels.PowerNorm(2), *arguments)
        parts = found if isinstance(found, tuple) else (found,)
        return [np.asarray(item.tolist()) for item in parts]

    for reduction in ("max", "min", "logsumexp"):
        assert np.isnan(reduce(reduction)).all()
    for reduction in ("argmax", "argmin"):
        assert (reduce(reduction)[0] == place).all()
    matrix = kronop.cdist(x, np.delete(y, place, 0)).astype(float)
    for largest in (False, True):
        values, indices = reduce("topk", 3, largest)
        assert np.isnan(values[:, 0]).all()
        assert (indices[:, 0] == place).all()
        order = np.sort(matrix, -1)[:, ::-1] if largest else np.sort(matrix, -1)
        np.testing.assert_allclose(values[:, 1:], order[:, :2], rtol=1e-2)


def _moved(array: Any, framework: str, device: str) -> Any:
    if framework == "torch":
        return pytest.importorskip("torch").from_numpy(array).to(device)
    return pytest.importorskip("cupy").asarray(array) if framework == "cupy" else array


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 5, 64, 65])
def test_of_equal_values_the_first_ones_are_taken(dtype: str, largest: bool, k: int) -> None:
    """Among many, in batches, with NaN before all others; `k` above 64 is NumPy's, in any order."""
    random = np.random.default_rng(k)
    x = random.integers(-3, 4, (2, 7, 1)).astype(dtype)
    y = random.integers(-9, 10, (2, 900, 1)).astype(dtype)
    y[:, ::250] = np.nan
    with np.errstate(invalid="ignore"):
        matrix = (x.astype(float) @ y.astype(float).swapaxes(-1, -2)) * (-1 if largest else 1)
    order = np.argsort(np.where(np.isnan(matrix), -np.inf, matrix), -1, kind="stable")[..., :k]
    values, indices = kronop.kernel_reduce(x, y, kernels.Linear(), "topk", k=k, largest=largest)
    expected = np.take_along_axis(matrix, order, -1) * (-1 if largest else 1)
    np.testing.assert_array_equal(values, expected)
    assert values.dtype == dtype
    if k <= select_design.MOST:
        np.testing.assert_array_equal(indices, order)
    taken = np.take_along_axis(matrix, indices, -1) * (-1 if largest else 1)
    np.testing.assert_array_equal(taken, expected)


def test_distances_are_the_roots_of_what_is_compared() -> None:
    distances = kronop.kernel_matrix(_X, _Y, kernels.PowerNorm(2))
    for reduction in ("max", "min"):
        found = kronop.kernel_reduce(_X, _Y, kernels.PowerNorm(2), reduction)
        np.testing.assert_array_equal(found, getattr(distances, reduction)(-1))
    x, y = (np.float16(300) * item.astype(np.float16) for item in (_X, _Y))  # 300^2 overflows.
    nearest, _ = kronop.kernel_reduce(x, y, kernels.PowerNorm(2), "topk", k=6)
    assert np.isfinite(nearest).all()


_PEAKS = """
import numpy as np
import kronop
from kronop.core.native import library
library.wait("x86")  # Else it would be imported beside the calls.
def memory(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024
def peak(call, y, v):
    call(y[:10_000], v[:10_000])
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # The peak is what is held now.
    before = memory("VmRSS")
    call(y, v)
    return memory("VmHWM") - before
def peaks(x, y, v):
    norm = kronop.kernels.PowerNorm(1)
    for name in ("max", "argmin", "logsumexp", "topk"):
        print(name, peak(lambda y, v: kronop.kernel_reduce(x, y, norm, name), y, v))
    print("matmul", peak(lambda y, v: kronop.kernel_matmul(x, y, v, norm), y, v))
given = np.ones((1, 1), np.float32), np.ones((8_000_000, 1), np.float32)
peaks(*given, given[1])
try:
    import torch
except ImportError:
    raise SystemExit
x, y = map(torch.from_numpy, given)
peaks(x, y, y)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="no peaks of memory here")
def test_a_row_of_many_points_takes_little_memory() -> None:
    """32 MB as a row of the matrix: it is computed and reduced in parts."""
    command = [sys.executable, "-c", _PEAKS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peaks = [(int(peak), name) for name, peak in map(str.split, done.stdout.splitlines())]
    assert len(peaks) >= 5
    assert max(peaks)[0] < 16_000_000, peaks


def test_more_tiles_than_a_grid_has_are_refused() -> None:
    points = kronop.TensorDescription(kronop.float32)
    epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
    operation = kronop.DistanceOperation(
        "sm_90a", None, points, points, points, epilogue, kernel=kernels.PowerNorm(1)
    )
    operand = Strided(pointer=0, strides=(1, 1), batch=())
    problem = DistanceProblem(
        m=2**40,
        n=1,
        k=1,
        batch=(),
        x1=operand,
        x2=operand,
        z=None,
        y=operand,
        values=(),
        vectors=(),
        diagonal=0,
        scalars=(1.0, 0.0),
        threads=1,
        workspace=0,
    )
    with pytest.raises(kronop.ArgumentError, match="tiles of a launch: expected at most"):
        operation.launches(problem)
