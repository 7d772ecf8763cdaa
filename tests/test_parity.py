"""Every family, target and element type that kernels are declared for, against the reference.

Sizes are ragged on purpose; outputs are poisoned; inputs are fresh for every run. Every pair of
choices is run, on each machine that is here; with `--full` every combination.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import families
from kronop.descriptions.datatype import result_type
from tests import support
from tests.covering import combinations

_CUDA = support.cuda_target()
_TARGETS = {"x86": support.cpu_targets(), "cuda": [_CUDA]}
_OWN = _TARGETS["x86"][-1]
_LAYOUTS = (kronop.RowMajor, kronop.ColumnMajor)
_FACTORS = {
    "square": [(8, 8)] * 4,
    "ragged": [(2, 3), (5, 2), (6, 4)],
    "vector": [(1, 7)],
    "prime": [(127, 31)],
    "long": [(505, 3)],
    "passes": [(40, 36), (3, 2)],
    "last": [(100, 300), (4, 4)],
    "middle": [(3, 2), (129, 128), (4, 5)],
    "five": [(5, 5)] * 5,
    "unit": [(1, 1)] * 3 + [(3, 3)] + [(1, 1)] * 66,
}
_PATTERNS = {
    "small": (1, 2, 2, 1),
    "blocks": (6, 16, 8, 1),
    "strided": (1, 12, 24, 2),
    "odd": (3, 5, 7, 5),
    "wide": (2, 2, 2, 64),
    "tall": (1, 129, 67, 3),
    "lanes": (1, 96, 16, 17),
}
_CHAINS = {
    "pair": [(2, 24, 32, 1), (1, 40, 24, 2)],
    "odd": [(3, 10, 17, 1), (1, 18, 10, 3), (9, 5, 6, 1)],
}
_GRADIENT_FACTORS = {
    "square": ((8, 8), (8, 8)),
    "uneven": ((2, 3), (5, 1), (3, 4)),
    "tiny": ((2, 2),) * 6,
}
_FLOATS = [element for element in support.ELEMENTS if element.kind == "float"]
_BOTH = (False, True)
# What each test is run for, beside the targets of its family.
_CHOICES: dict[str, tuple[type, dict[str, Any]]] = {
    "test_kron": (
        kronop.KronMatmulDescription,
        {
            "element": support.ELEMENTS,
            "factors": list(_FACTORS),
            "side": list(kronop.Side),
            "x_layout": _LAYOUTS,
            "f_layout": _LAYOUTS,
            "y_layout": _LAYOUTS,
        },
    ),
    "test_ksparse": (
        kronop.KSparseDescription,
        {
            "element": (*support.ELEMENTS, *support.FLOAT8),
            "pattern": list(_PATTERNS),
            "batch_last": _BOTH,
            "x_layout": _LAYOUTS,
            "y_layout": _LAYOUTS,
            "turned": _BOTH,
        },
    ),
    "test_ksparse_chain": (
        kronop.KSparseChainDescription,
        {
            "element": [e for e in support.ELEMENTS if result_type(e) == e],
            "patterns": list(_CHAINS),
            "batch_last": _BOTH,
            "x_layout": _LAYOUTS,
            "y_layout": _LAYOUTS,
        },
    ),
    "test_ksparse_gradient": (
        kronop.KSparseGradientDescription,
        {
            "element": _FLOATS,
            "pattern": list(_PATTERNS),
            "batch_last": _BOTH,
            "tied": _BOTH,
            "layout": _LAYOUTS,
        },
    ),
    "test_ksparse_gradient_of_factors": (
        kronop.KSparseGradientDescription,
        {"element": _FLOATS, "factors": list(_GRADIENT_FACTORS), "batch_last": _BOTH},
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function.__name__ not in _CHOICES:
        return
    family, choices = _CHOICES[metafunc.function.__name__]
    full = metafunc.config.getoption("--full")
    shown: set[Any] = set()
    cases = [
        pytest.param(case, id=_name(case), marks=_marks(case, shown))
        for kind in (kind for known in families.FAMILIES for kind in known.kinds)
        if kind.description.get() is family
        for backend in kind.emitters
        for case in combinations(full=full, target=_TARGETS[backend], **choices)
    ]
    metafunc.parametrize("case", cases)


def _marks(case: dict[str, Any], shown: set[Any]) -> list[pytest.MarkDecorator]:
    """Each element type and each shape is built once as users of this machine have it, all else
    quickly; `shown` are those of the cases before."""
    if case["target"] == _CUDA:
        return [pytest.mark.cuda]
    _, element, shape, *_ = case.values()
    if case["target"] != _OWN or {element, shape} <= shown:
        return []
    shown |= {element, shape}
    return [pytest.mark.optimised]


def _name(case: dict[str, Any]) -> str:
    words = (getattr(choice, "short", getattr(choice, "name", choice)) for choice in case.values())
    return "-".join(str(word) for word in words)


def _with_bias(element):
    """An epilogue for results that get a bias: integers have no activation that reads fractions."""
    compute = support.accumulator(element)
    if element.kind == "int":
        return support.linear(element)
    output = result_type(element)
    return kronop.LinearCombinationGeneric(kronop.gelu(compute), output, 1, compute, compute)


def _operand(random: np.random.Generator, shape: Any, element: Any, layout: Any) -> Any:
    return support.laid_out(support.random_array(random, shape, element), layout)


def _result(shape: Any, element: Any, layout: Any) -> Any:
    return support.laid_out(support.poison(shape, element), layout)


def test_kron(case: dict[str, Any]) -> None:
    random, element = np.random.default_rng(), case["element"]
    factors, y_layout = _FACTORS[case["factors"]], case["y_layout"]
    operation = support.kron_operation(
        case["target"],
        element,
        factors,
        side=case["side"],
        layout=case["x_layout"],
        y_layout=y_layout,
    )
    output = operation.description.Y.element
    matrices = [_operand(random, shape, element, case["f_layout"]) for shape in factors]
    for rows in (1, 19):
        sizes = operation.sizes(rows)
        x = _operand(random, sizes.x_shape, element, case["x_layout"])
        z = _operand(random, sizes.y_shape, output, y_layout)
        y = _result(z.shape, output, y_layout)
        output_op = operation.epilogue_type(2, -3)
        arguments = kronop.KronMatmulArguments(
            operation=operation, X=x, factors=matrices, Z=z, Y=y, output_op=output_op
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_kron(operation, x, matrices, z, output_op).check(y)


def _scalars(operation: Any, element: Any) -> Any:
    return operation.epilogue_type(*(0.5, -1.5) if element.kind == "float" else (2, -3))


def test_ksparse(case: dict[str, Any]) -> None:
    random, element = np.random.default_rng(), case["element"]
    a, b, c, d = pattern = _PATTERNS[case["pattern"]]
    operation = support.ksparse_operation(
        case["target"],
        element,
        pattern,
        batch_last=case["batch_last"],
        layout=case["x_layout"],
        y_layout=case["y_layout"],
        epilogue=_with_bias(element),
    )
    output = operation.description.Y.element
    shape = (a, c, b, d) if case["turned"] else pattern
    weights = support.random_array(random, shape, element)
    weights = weights.swapaxes(1, 2) if case["turned"] else weights
    bias = support.random_array(random, (operation.description.output_columns,), output)
    output_op = _scalars(operation, element)
    for rows in (1, 133):
        x = _operand(random, operation.sizes(rows).x_shape, element, case["x_layout"])
        z = _operand(random, operation.sizes(rows).y_shape, output, case["y_layout"])
        y = _result(z.shape, output, case["y_layout"])
        arguments = kronop.KSparseArguments(
            operation=operation, X=x, W=weights, Z=z, Y=y, bias=bias, output_op=output_op
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_ksparse(operation, x, weights, z, bias, output_op).check(y)


def test_ksparse_chain(case: dict[str, Any]) -> None:
    random, element = np.random.default_rng(), case["element"]
    target, patterns = case["target"], _CHAINS[case["patterns"]]
    operation = support.chain_operation(
        target,
        element,
        patterns,
        batch_last=case["batch_last"],
        layout=case["x_layout"],
        y_layout=case["y_layout"],
        epilogue=_with_bias(element),
    )
    output = operation.description.Y.element
    weights = [support.random_array(random, pattern, element) for pattern in patterns]
    bias = support.random_array(random, (operation.description.output_columns,), output)
    output_op = _scalars(operation, element)
    for rows in (1, 133):
        x = _operand(random, operation.sizes(rows).x_shape, element, case["x_layout"])
        z = _operand(random, operation.sizes(rows).y_shape, output, case["y_layout"])
        expected = support.expected_chain(operation, x, weights, z, bias, output_op)
        # On CPUs other plans have other tiles, which other tests run.
        for plan in operation.candidates(1 if target.startswith("x86") else 3):
            y = _result(z.shape, output, case["y_layout"])
            arguments = kronop.KSparseChainArguments(
                operation=operation, X=x, weights=weights, Z=z, Y=y, bias=bias, output_op=output_op
            )
            served = operation.serve(plan)
            arguments.run(served.kernels, None, served)
            arguments.sync()
            expected.check(y)


def test_a_chain_of_bytes_is_refused() -> None:
    with pytest.raises(kronop.DescriptionError, match="a type that results have as well"):
        support.chain_operation("x86", kronop.int8, _CHAINS["pair"])


def test_ksparse_gradient(case: dict[str, Any]) -> None:
    random, element = np.random.default_rng(), case["element"]
    for products, rows in ((None, 1), (None, 133), (3, 20)):
        operation = support.gradient_operation(
            case["target"],
            element,
            _PATTERNS[case["pattern"]],
            tied=case["tied"],
            batch_last=case["batch_last"],
            products=products,
            layout=case["layout"],
        )
        description = operation.description
        x = _operand(random, description.x_shape(rows), element, case["layout"])
        g = _operand(random, description.shapes(rows)["G"], element, case["layout"])
        z = support.random_array(random, description.y_shape(rows), element)
        y = support.poison(z.shape, element)
        output_op = operation.epilogue_type(0.5, -1.5)
        arguments = kronop.KSparseGradientArguments(
            operation=operation, X=x, G=g, Z=z, Y=y, output_op=output_op
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_gradient(operation, x, g, z, output_op).check(y)


def test_gradients_of_integers_are_refused() -> None:
    with pytest.raises(kronop.DescriptionError, match="no kernel"):
        support.gradient_operation(_CUDA, kronop.int32, _PATTERNS["small"])


def test_ksparse_gradient_of_factors(case: dict[str, Any]) -> None:
    random, element = np.random.default_rng(), case["element"]
    factors = _GRADIENT_FACTORS[case["factors"]]
    rows, columns = (math.prod(sizes) for sizes in zip(*factors, strict=True))
    for pattern, batch in (((2, columns, rows, 3), 70), ((1, columns, rows, 16), 33)):
        operation = support.gradient_operation(
            case["target"],
            element,
            pattern,
            tied=True,
            batch_last=case["batch_last"],
            factors=factors,
        )
        what = operation.description
        shapes = (what.x_shape(batch), what.shapes(batch)["G"], what.y_shape(batch))
        x, g, z = (support.random_array(random, shape, element) for shape in shapes)
        matrices = [support.random_array(random, shape[::-1], element).T for shape in factors]
        y = support.poison(z.shape, element)
        output_op = operation.epilogue_type(0.5, -1.5)
        arguments = kronop.KSparseGradientArguments(
            operation=operation, X=x, G=g, Z=z, Y=y, output_op=output_op, factors=matrices
        )
        operation.run(arguments)
        arguments.sync()
        support.expected_gradient(operation, x, g, z, output_op, matrices).check(y)
