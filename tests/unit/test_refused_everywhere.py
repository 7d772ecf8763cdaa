"""What no public function takes, and refuses in words that tell what to do instead: complex
numbers, and torch's tensors that have no memory of their own."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import kernels
from kronop.core.family import Kind
from kronop.families import FAMILIES
from tests.families import samples

_EYE, _ROWS = np.eye(4), np.ones((3, 4))
_PAIR = [np.eye(2), np.eye(2)]
_WEIGHTS = np.ones((1, 4, 4, 1))
_PANELS = kronop.ColumnMajorInterleaved32
_SHIFTED = kronop.epilogue_visitor(lambda accum, c: accum + c, kinds={"c": "tensor"})

# What each function is called with; its arrays, and floats, become what is refused in turn.
_Given = tuple[tuple[Any, ...], dict[str, Any]]
_CALLS: dict[str, _Given] = {
    "gemkm": ((_ROWS, _PAIR), {"alpha": 2.0, "beta": 1.0, "z": _ROWS}),
    "gekmm": ((_PAIR, _ROWS.T), {"alpha": 2.0, "beta": 1.0, "z": _ROWS.T}),
    "ksmm": ((_ROWS, [_WEIGHTS, _WEIGHTS]), {"bias": _ROWS[0], "beta": 1.0, "z": _ROWS}),
    "weight_gradient": ((_ROWS, _ROWS, (1, 4, 4, 1)), {}),
    "cdist": ((_ROWS, _EYE, 1.5), {}),
    "cdist_grad": ((_EYE, _EYE, _EYE, _EYE, 1.5), {}),
    "kernel_matrix": ((_ROWS, _EYE, kernels.Linear()), {"regularization": 1.0}),
    "kernel_matmul": ((_ROWS, _EYE, _EYE, kernels.Linear()), {"regularization": 1.0}),
    "kernel_reduce": ((_ROWS, _EYE, kernels.Linear(), "max"), {}),
    "run_kernel": ((kronop.kernel_descriptor_laplace_l1, _ROWS, _EYE), {"bandwidth": 2.0}),
    "quantized_gemkm": ((_ROWS.astype("f4"), [item.astype("f4") for item in _PAIR]), {"bits": 4}),
    "matmul": ((_ROWS, _EYE, _ROWS), {"alpha": 2.0, "beta": 1.0, "bias": _ROWS[0]}),
    "matmul_visited": ((_SHIFTED, _ROWS, _EYE), {"c": _ROWS}),
    "grouped_matmul": (([_ROWS], [_EYE], [_ROWS]), {"beta": 1.0, "biases": [_ROWS[0]]}),
    # In all layouts that functions of this name take.
    "conv2d": ((_ROWS[:2, :1, None, None], _ROWS[:2, :1, None, None], _ROWS[0, :2]), {}),
    "interleave": ((np.ones((4, 32), np.int8), _PANELS), {}),
    "deinterleave": ((np.ones((1, 4, 32), np.int8), _PANELS), {}),
    "eigh": ((_EYE,), {}),
    "solve_cholesky": ((_EYE, _EYE), {}),
    "solve_lu": ((_EYE, _EYE), {}),
}
_WITHOUT_TENSORS = {"decompositions", "pre_compile_descriptors"}
_OPERATORS = {
    "KroneckerOperator": kronop.KroneckerOperator(_PAIR),
    "KroneckerSum": kronop.KroneckerSum(_PAIR),
    "KroneckerProductSum": kronop.KroneckerProductSum([kronop.KroneckerOperator(_PAIR)] * 2),
    "SpectralOperator": kronop.KroneckerOperator(_PAIR).eigh(),
}
_TOLD = r"real number|real part|Python number|complex (points|numbers|matrices) are not supported"


def _leaves(item: Any, kinds: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all items of these classes in nested tuples, lists and dicts."""
    if isinstance(item, kinds):
        yield path
    elif isinstance(item, (tuple, list, dict)):
        pairs = item.items() if isinstance(item, dict) else enumerate(item)
        for key, inner in pairs:
            yield from _leaves(inner, kinds, (*path, key))


def _changed(item: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """The same with what is at the end of a path changed."""
    if not path:
        return change(item)
    found: Any = dict(item) if isinstance(item, dict) else list(item)
    found[path[0]] = _changed(item[path[0]], path[1:], change)
    return tuple(found) if isinstance(item, tuple) else found


def _mapped(change: Callable[[Any], Any], item: Any) -> Any:
    """The same with all arrays changed."""
    for path in _leaves(item, np.ndarray):
        item = _changed(item, path, change)
    return item


def _complex(item: Any) -> Any:
    return item * 1j if isinstance(item, float) else item.astype("c16")


def _check(call: Callable[..., Any], given: _Given, change: Any = lambda array: array) -> None:
    """Every array and number is refused where it is complex."""
    paths = [*_leaves(given, (np.ndarray, float))]
    assert paths
    for path in paths:
        arguments, named = _mapped(change, _changed(given, path, _complex))
        with pytest.raises(kronop.ElementTypeError, match=_TOLD):
            call(*arguments, **named)


def _public(module: str) -> list[str]:
    """The functions among a module's public names."""
    found = importlib.import_module(module) if module != "kronop.gemm" else kronop.gemm
    names = [name for family in FAMILIES for name in family.exports]
    names = names if module == "kronop" else [*found.__all__]
    every = [name for name in names if inspect.isfunction(getattr(found, name))]
    return sorted(set(every) - _WITHOUT_TENSORS)


def _functions(*modules: str) -> Iterator[tuple[Callable[..., Any], _Given]]:
    """The functions of modules, with what they are called with."""
    for module in modules:
        found = kronop.gemm if module == "kronop.gemm" else importlib.import_module(module)
        for name in _public(module):
            yield getattr(found, name), _CALLS[name]


_PLAIN = ("kronop", "kronop.gemm", "kronop.linalg")


def test_complex_numbers() -> None:
    for call, given in _functions(*_PLAIN):
        _check(call, given)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_complex_numbers_in_torch(device: str) -> None:
    """Also of tensors without values, or else a traced program fails far from what was wrong."""
    torch = pytest.importorskip("torch")
    for call, given in _functions("kronop.torch"):
        _check(call, given, lambda array: torch.tensor(array, device=device))


def _refused(modules: Sequence[str], change: Callable[[Any], Any], told: str) -> None:
    """Every tensor is refused where `change` made it, beside others."""
    torch = pytest.importorskip("torch")
    for call, given in _functions(*modules):
        tensors = _mapped(torch.tensor, given)
        for path in _leaves(tensors, torch.Tensor):
            arguments, named = _changed(tensors, path, change)
            with pytest.raises(kronop.ArgumentError, match=told):
                call(*arguments, **named)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_nested_tensors(layout: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, layout)
    _refused(
        (*_PLAIN, "kronop.torch"),
        lambda item: torch.nested.as_nested_tensor([item, item], layout=kind),
        r"a nested tensor; call \.to_padded_tensor\(0\) first, or pass .* \.unbind\(\)",
    )


def test_tensors_on_meta_beside_others() -> None:
    torch = pytest.importorskip("torch")
    told = r"device meta, without values; pass a real one"
    _refused(_PLAIN, lambda item: item.to("meta"), told)
    told = rf"{told}|device of .*expected|devices of X and weights"
    _refused(("kronop.torch",), lambda item: item.to("meta"), told)
    assert torch


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse")
@pytest.mark.parametrize("kind", ["strided", "jagged", "sparse", "csr", "meta"])
def test_tensors_without_strides_or_values_beside_operators(kind: str) -> None:
    torch = pytest.importorskip("torch")
    change, told = {
        "sparse": (torch.Tensor.to_sparse, "layout torch.sparse_coo; call .to_dense"),
        "csr": (torch.Tensor.to_sparse_csr, "layout torch.sparse_csr; call .to_dense"),
        "meta": (lambda item: item.to("meta"), r"^device of .* (got|expected) meta"),
    }.get(kind) or (
        lambda item: torch.nested.as_nested_tensor([item] * 2, layout=getattr(torch, kind)),
        "a nested tensor; call",
    )
    pair = [torch.eye(2), torch.eye(2)]
    x = change(torch.eye(4))
    product = kronop.KroneckerOperator(pair)
    every = (product, kronop.KroneckerSum(pair), product + product, product.eigh())
    calls = [
        call for item in every for call in (item.__matmul__, item.__rmatmul__, item.solve, item.cg)
    ]
    calls += [lambda x, other=item: kronop.cg(other, x) for item in every]
    calls += [lambda x: kronop.KroneckerOperator([pair[0], change(pair[1])])]
    calls += [lambda x: kronop.KroneckerSum([change(pair[0]), pair[1]])]
    for call in calls:
        with pytest.raises(kronop.ArgumentError, match=told):
            call(x)


def test_maps_over_functions_that_torch_does_not_know() -> None:
    torch = pytest.importorskip("torch")
    told = r"that torch\.vmap maps; use .*, or pass the batch itself: leading dimensions broadcast"
    for call, given in _functions(*_PLAIN):
        tensors = _mapped(torch.tensor, given)
        for path in _leaves(tensors, torch.Tensor):

            def mapped(
                item: Any, call: Any = call, path: Any = path, tensors: Any = tensors
            ) -> Any:
                arguments, named = _changed(tensors, path, lambda _: item)
                return call(*arguments, **named)

            whole: list[Any] = []
            _changed(tensors, path, lambda item, whole=whole: whole.extend([item, item]))
            with pytest.raises(kronop.ArgumentError, match=told):
                torch.vmap(mapped)(torch.stack(whole))


def test_complex_numbers_in_layers() -> None:
    torch = pytest.importorskip("torch")
    nn, how = kronop.torch.nn, {"dtype": torch.float64}
    layers = [nn.KSLinear([(1, 4, 4, 1)], algo=algo, **how) for algo in ("kernel", "dense")]
    for layer in (*layers, nn.KroneckerLinear([(2, 2), (2, 2)], **how)):
        _check(layer, ((_ROWS,), {}), torch.tensor)


def test_complex_numbers_in_jax() -> None:
    pytest.importorskip("jax")
    narrow = {"f": "f4", "c": "c8"}  # JAX knows wider ones only where it is told to.
    for call, given in _functions("kronop.jax"):
        _check(call, given, lambda array: array.astype(narrow[array.dtype.kind]))


@pytest.mark.parametrize("name", _OPERATORS)
def test_complex_numbers_beside_operators(name: str) -> None:
    operator = _OPERATORS[name]
    for call in (
        lambda x: operator @ x,
        lambda x: x @ operator,
        operator.cg,
        lambda x: kronop.cg(operator, x),
        lambda x: kronop.cg(lambda columns: operator @ columns, x),
    ):
        _check(call, ((_EYE,), {}))
    if name != "KroneckerProductSum":  # It has no solutions of its own, with a shift at least.
        _check(operator.solve, ((_EYE, 1.0), {}))
        _check(operator.slogdet, ((1.0,), {}))
    _check(lambda scale: scale * operator, ((2.0,), {}))


def test_complex_factors_of_operators() -> None:
    for kind in (kronop.KroneckerOperator, kronop.KroneckerSum):
        _check(kind, ((_PAIR,), {}))


def test_complex_numbers_in_scipy() -> None:
    scipy = pytest.importorskip("scipy.sparse.linalg")
    assert scipy
    _check(lambda x: kronop.scipy.LinearOperator(_OPERATORS["KroneckerSum"]) @ x, ((_EYE,), {}))


@pytest.mark.parametrize("name", sorted(set(kernels.__all__) - {"Cosine", "Kernel", "Linear"}))
def test_complex_values_of_kernels(name: str) -> None:
    kind = functools.partial(kernels.Matern, 0.5) if name == "Matern" else getattr(kernels, name)
    for value in (2.0, np.full(3, 2.0)):
        values = {"Scaled": (value, kernels.Linear()), "Polynomial": (2, value)}
        values["RationalQuadratic"] = (value, value)
        _check(kind, (values.get(name, (value,)), {}))


@pytest.mark.parametrize("kind", [*samples.kinds(FAMILIES)], ids=lambda kind: kind.name)
def test_complex_operands_of_arguments(kind: Kind) -> None:
    target = "x86" if "x86" in kind.emitters else "sm_90a"
    operation = samples.operation(kind, target, samples.elements(kind, target)[0])
    shapes = operation.description.operands(3)
    given = {name: _filled(shape) for name, shape in shapes.items()}
    _check(samples.arguments_of(kind), ((), {**given, "operation": operation}))


def _filled(shape: Any) -> Any:
    return [_filled(item) for item in shape] if isinstance(shape, list) else np.ones(shape, "f8")
