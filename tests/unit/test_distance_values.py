"""What kernels take as values: numbers, lists and arrays; what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import kernels
from kronop.families.distance.composed import bound_of

_RANDOM = np.random.default_rng(21)
_X, _Y = _RANDOM.standard_normal((7, 5)), _RANDOM.standard_normal((6, 5))
_SQUARE = ((_X[:, None] - _Y) ** 2).sum(-1)


@pytest.mark.parametrize("powers", [[1.3, 0.0], [1.3, float("inf")], np.array([0.0])])
def test_powers_0_and_infinity_are_numbers_only(powers: Any) -> None:
    for call in (kernels.PowerNorm, lambda p: kronop.cdist(_X[None], _Y[None], p)):
        with pytest.raises(kronop.ArgumentError, match="pass 0 or infinity as a number"):
            call(powers)
    assert kronop.cdist(_X, _Y, np.float64(0)).max() == 5


def test_the_largest_difference_is_factored_out_unless_powers_are_known_to_be_ordinary() -> None:
    for p, is_relative in (
        *((1.3, False), (15.9, False), (16.0, True), (0.05, True), (1e39, True)),
        *(([1.3, 2.0], False), ([1.3, 60.0], True), ([0.05], True)),
    ):
        kinds = [term.kind.name for term in kernels.PowerNorm(p).bound(1).form.terms]
        assert kinds == (["Relative", "Largest"] if is_relative else ["General"])
        (sums,) = kernels.PowerNorm(p, root=False).bound(1).form.terms
        assert sums.kind.name == "General"
    found = kronop.cdist(_X[None], _Y[None], [60.0])
    np.testing.assert_allclose(found[0], kronop.cdist(_X, _Y, 60), rtol=1e-13)


def test_repeated_calls_find_a_kernels_form_unless_arrays_may_have_changed() -> None:
    kernel = 2.0 * kernels.Gaussian(0.5) + kernels.Linear()
    bound = bound_of(kernel, 0)
    assert bound_of(kernel, 0, None) is bound
    for other in ((1,), (0, 0.5), (0, [0.5])):
        assert bound_of(kernel, *other) is not bound
    assert bound_of(kernel, 0) is not bound  # One is kept for each kernel.
    widths = np.array([0.5])
    kernel = kernels.Gaussian(widths)
    assert bound_of(kernel, 1).vectors == ()
    widths[0] = 1e-30
    assert len(bound_of(kernel, 1).vectors) == 1
    with pytest.raises(kronop.ElementTypeError, match="p: expected a real number"):
        kronop.cdist(_X, _Y, True)


def test_what_is_refused_is_told_with_its_place() -> None:
    for value, told in (
        ([1.0, 2.0, float("nan")], "got nan at index 2; pass numbers of this range"),
        (np.array([[1.0, -2.0]]), r"got -2.0 at index \(0, 1\); "),
        (float("inf"), "got inf; "),
        ("2", "got '2'; pass a number"),
        (10**400, "got an integer beyond float64; "),
    ):
        with pytest.raises(kronop.errors.KronopError, match=f"bandwidth: expected .*{told}"):
            kernels.Gaussian(value)
    for call in (lambda v: v * kernels.Linear(), lambda v: kernels.Linear().bound(0, v)):
        with pytest.raises(kronop.ArgumentError, match="expected finite numbers, got nan; "):
            call(float("nan"))


_BATCH = np.stack([_X, _X])
_NOT_OF_THE_BATCH: dict[str, tuple[Callable[[], Any], str]] = {
    "noise of each point": (
        lambda: kronop.kernel_matrix(_X, _X, kernels.Linear(), np.ones(7)),
        r"regularization: expected one number .* got shape \(7,\) .* noise .*x1\[None\]",
    ),
    "noise in a product": (
        lambda: kronop.kernel_matmul(_X, _X, _X, kernels.Linear(), np.ones(7)),
        "regularization: expected one number for each problem",
    ),
    "bandwidths": (
        lambda: kronop.kernel_matrix(_X, _X, kernels.Gaussian(np.ones(7))),
        r"per feature: expected 5 or 1 .* got \(7,\); .* each problem is bandwidth\[:, None\]",
    ),
    "other batch": (
        lambda: kronop.kernel_matrix(_BATCH, _BATCH, kernels.Linear(), np.ones(3)),
        r"regularization: expected shape \(2,\), one for each problem, or \(\), got \(3,\); it ",
    ),
    "features beside a batch": (
        lambda: kronop.kernel_matrix(_BATCH, _BATCH, kernels.Gaussian([1.0] * 5)),
        r"bandwidth: expected shape \(2,\), .* \(2, 5\) and \(1, 5\) .* bandwidth\[None\]",
    ),
    "reduced": (
        lambda: kronop.kernel_reduce(_BATCH, _BATCH, kernels.Gaussian([1.0] * 5), "max"),
        r"bandwidth: expected shape \(2,\)",
    ),
}


@pytest.mark.parametrize("case", _NOT_OF_THE_BATCH)
def test_values_that_do_not_broadcast_are_refused_with_the_way(case: str) -> None:
    call, message = _NOT_OF_THE_BATCH[case]
    with pytest.raises(kronop.ArgumentError, match=message):
        call()


_P = np.array([1.3, 1.7, 2.3])
_BY_VALUE: dict[str, Callable[[Any], Any]] = {
    "cdist": lambda v: kronop.cdist(_X, _Y, v),
    "symmetric": lambda v: kronop.cdist(_X, _X, v),
    "scale and regularization": lambda v: kronop.kernel_matrix(_X, _Y, v * kernels.Linear(), v),
    "kernel_matmul": lambda v: kronop.kernel_matmul(_X, _Y, _Y, kernels.PowerNorm(v)),
    "of a vector": lambda v: kronop.kernel_matmul(_X, _Y, _Y[:, 0], v * kernels.Linear()),
    "kernel_reduce": lambda v: kronop.kernel_reduce(_X, _Y, kernels.PowerNorm(v), "min"),
    "run_kernel": lambda v: kronop.run_kernel(
        _LAPLACE_OF_POWERS, _X, _Y, p=v, bandwidth=v, regularization=v
    ),
    "run_kernel of one value": lambda v: kronop.run_kernel(
        kronop.kernel_descriptor_laplace_l2, _X, _X, bandwidth=v, regularization=10.0
    ),
}
_LAPLACE_OF_POWERS = kronop.KernelDescriptor(
    inner_operator=kronop.InnerOperator.DIFF,
    inner_power=kronop.PowerType.POW,
    outer_power=kronop.PowerType.POW,
    kernel_type=kronop.KernelType.LAPLACE,
)


@pytest.mark.parametrize("case", _BY_VALUE)
def test_values_for_a_batch_make_one_of_points_without(case: str) -> None:
    """As in kermac's examples: points (M, K) and values (L,) give (L, M, N)."""
    call = _BY_VALUE[case]
    expected = np.stack([call(np.array(value)) for value in _P])
    np.testing.assert_allclose(call(_P), expected, rtol=1e-13)


def test_bandwidths_for_a_batch_have_one_number_for_all_features_or_each() -> None:
    widths = _RANDOM.uniform(0.5, 2.0, (3, 5))
    for given in (widths, widths[:, :1]):
        found = kronop.kernel_matrix(_X, _Y, kernels.Gaussian(given))
        one = [kronop.kernel_matrix(_X / w, _Y / w, kernels.Gaussian(1.0)) for w in given]
        np.testing.assert_allclose(found, np.stack(one), rtol=1e-12)


def test_lists_are_arrays_of_one_dimension() -> None:
    """Per feature beside points without a batch, else per problem; (1, K) is per feature again."""
    x, widths = _RANDOM.standard_normal((5, 7, 5)), [0.5, 1.0, 2.0, 3.0, 4.0]
    per_problem = kronop.kernel_matrix(x, x, kernels.Gaussian(widths))
    per_feature = kronop.kernel_matrix(x, x, kernels.Gaussian(np.array([widths])))
    for at, width in enumerate(widths):
        one = kronop.kernel_matrix(x[at], x[at], kernels.Gaussian(width))
        np.testing.assert_allclose(per_problem[at], one, rtol=1e-13)
        one = kronop.kernel_matrix(x[at], x[at], kernels.Gaussian(widths))
        np.testing.assert_allclose(per_feature[at], one, rtol=1e-13)


def test_a_power_that_is_another_value_too_is_itself() -> None:
    p = 1.3
    kernel = kernels.Gaussian(p) * kernels.Gaussian(2.1) + kernels.PowerNorm(p)
    found = kronop.kernel_matrix(_X, _Y, kernel)
    gaussians = np.exp(-_SQUARE / (2 * 1.3**2) - _SQUARE / (2 * 2.1**2))
    np.testing.assert_allclose(found - gaussians, kronop.cdist(_X, _Y, 1.3), rtol=1e-12)


def _other(kind: str) -> Any:
    return _Y.astype(kind)


_TYPES: dict[str, tuple[Callable[[], Any], str]] = {
    "of points": (
        lambda: kronop.cdist(_X, _other("f4")),
        r"of X2: expected float64, as X1 has, got float32; convert one: x2.astype\('float64'\)",
    ),
    "of v": (
        lambda: kronop.kernel_matmul(_X, _Y, _other("f4"), kernels.Linear()),
        "of V: expected float64, as X1 has, got float32; convert one",
    ),
    "of the result": (
        lambda: kronop.cdist(_X[:4], _X[:4], out=np.empty((4, 4), np.float32)),
        "of Y: expected kronop.float64, got kronop.float32",
    ),
    "of another product's result": (
        lambda: kronop.gemkm(_X[:4, :4], [np.eye(4)], out=np.empty((4, 4), np.float32)),
        "of Y: expected kronop.float64, got kronop.float32",
    ),
} | {
    kind: (
        lambda kind=kind: kronop.kernel_reduce(_X.astype(kind), _Y, kernels.Linear(), "max"),
        "of x1: expected one of float64, float32, float16, bfloat16, got "
        rf"{np.dtype(kind).name}; convert it: x1.astype\('float32'\)",
    )
    for kind in ("i8", "?")
}
_TYPES["c16"] = (
    lambda: kronop.kernel_reduce(_X.astype("c16"), _Y, kernels.Linear(), "max"),
    "of x1: expected one of float64, float32, float16, bfloat16, got complex128; complex points",
)


@pytest.mark.parametrize("case", _TYPES)
def test_element_types_are_refused_as_such(case: str) -> None:
    call, message = _TYPES[case]
    with pytest.raises(kronop.ElementTypeError, match=f"element type {message}"):
        call()


def test_vectors_are_told_with_their_shape() -> None:
    with pytest.raises(kronop.ArgumentError, match=r"v: expected shape \(6,\), .* got \(7,\)"):
        kronop.kernel_matmul(_X, _Y, np.ones(7), kernels.Linear())
    with pytest.raises(kronop.ArgumentError, match=r"v\[\.\.\., None\]"):
        kronop.kernel_matmul(_X[None], _Y, np.ones((1, 6)), kernels.Linear())


def test_kernels_are_added_and_divided_as_numbers_are() -> None:
    matrix = kronop.kernel_matrix(_X, _Y, kernels.Linear())
    whole = sum([kernels.Linear(), kernels.Linear() / 2, kernels.Linear() / np.array(4.0)])
    np.testing.assert_allclose(kronop.kernel_matrix(_X, _Y, whole), 1.75 * matrix, rtol=1e-14)
    for wrong in (lambda: kernels.Linear() / "2", lambda: 1 + kernels.Linear()):
        with pytest.raises(TypeError):
            wrong()


def test_unknown_kernels_are_told_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no 'RBF', but Cosine, Gaussian, .* is Gaussian"):
        kernels.RBF  # noqa: B018
    assert dir(kernels) == kernels.__all__
    with pytest.raises(kronop.ElementTypeError, match=r"got ndarray of shape \(7, 5\); "):
        kronop.kernel_matmul(_X, _X, kernels.Linear(), _X)
    with pytest.raises(kronop.ElementTypeError, match="got the class Gaussian"):
        kronop.kernel_matrix(_X, _X, kernels.Gaussian)


@pytest.mark.parametrize("given", [{"k": 2}, {"largest": True}])
def test_only_topk_takes_k_and_largest(given: dict[str, Any]) -> None:
    with pytest.raises(kronop.ArgumentError, match=r"reduction with .*: expected topk, got max"):
        kronop.kernel_reduce(_X, _Y, kernels.Linear(), "max", **given)
    values, _ = kronop.kernel_reduce(_X, _Y, kernels.Linear(), "topk")
    assert values.shape == (7, 1)
