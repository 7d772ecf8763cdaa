"""KSparseGradientArguments: strides, products in front, accumulation, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kronop.descriptions.datatype import float64
from kronop.descriptions.epilogue import LinearCombination
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError, DescriptionError, ElementTypeError
from kronop.families.ksparse.gradient_arguments import KSparseGradientArguments
from kronop.families.ksparse.gradient_description import KSparseGradientDescription
from tests.unit.args_double import OperationDouble
from tests.unit.test_args_kron import _integers, _scrambled

PATTERN = (2, 3, 4, 2)
FACTORS = ((2, 3), (2, 1))


def _description(
    tied: bool, last: bool = False, products: int | None = None, factors: Any = ()
) -> KSparseGradientDescription:
    plain = TensorDescription(float64)
    return KSparseGradientDescription(
        math=MathInstruction.simt(float64),
        tile=None,
        X=plain,
        G=plain,
        Y=plain,
        epilogue=LinearCombination(float64, 1, float64, float64),
        pattern=PATTERN,
        tied=tied,
        batch_last=last,
        products=products,
        factors=factors,
    )


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 5),
    tied=st.booleans(),
    last=st.booleans(),
    products=st.sampled_from([None, 1, 3]),
    of_factors=st.booleans(),
    with_z=st.booleans(),
    given_y=st.booleans(),
    in_place=st.booleans(),
    scrambled=st.booleans(),
)
def test_every_stride_reaches_the_right_elements(
    seed: int,
    rows: int,
    tied: bool,
    last: bool,
    products: int | None,
    of_factors: bool,
    with_z: bool,
    given_y: bool,
    in_place: bool,
    scrambled: bool,
) -> None:
    random = np.random.default_rng(seed)
    make = _scrambled if scrambled else _integers
    if of_factors:
        tied, products = True, None
    what = _description(tied, last, products, FACTORS if of_factors else ())
    factors = [make(random, shape) for shape in what.factors]
    x, g = make(random, what.x_shape(rows)), make(random, what.shapes(rows)["G"])
    y = make(random, what.y_shape(rows)) if given_y or in_place else None
    z = (y if in_place else make(random, what.y_shape(rows))) if with_z else None
    expected = what.reference(x, g, factors=factors)
    if z is not None:
        expected = 2 * expected - 3 * z
    operation = OperationDouble(what)
    scalars = operation.epilogue_type(2.0, -3.0) if with_z else None
    arguments = KSparseGradientArguments(
        operation=operation, X=x, G=g, Z=z, Y=y, output_op=scalars, factors=factors
    )
    arguments.run(operation)
    arguments.sync()
    np.testing.assert_array_equal(arguments.Y, expected)


def test_what_does_not_fit_is_refused() -> None:
    operation = OperationDouble(_description(True))
    x, g = np.ones((5, 16)), np.ones((5, 12))

    def call(**changed: Any) -> None:
        KSparseGradientArguments(**{"operation": operation, "X": x, "G": g} | changed)

    for changed, named in (
        ({"X": np.ones((5, 15))}, "shape of X"),
        ({"X": np.ones((1, 5, 16))}, "shape of X"),
        ({"G": np.ones((4, 12))}, "shape of G"),
        ({"Y": np.ones((3, 4))}, "shape of Y"),
        ({"Y": np.broadcast_to(1.0, (4, 3))}, "Y"),
        ({"Y": x.reshape(-1)[:12].reshape(4, 3)}, "Y and X"),
        ({"output_op": operation.epilogue_type(1.0, 1.0)}, "Z"),
        ({"Z": np.ones((4, 3))}, "beta: expected a number, because Z is given"),
    ):
        with pytest.raises(ArgumentError, match=named):
            call(**changed)
    for factors in ([], [np.ones((2, 3))], [np.ones((2, 3)), np.ones((2, 2))]):
        with pytest.raises(ArgumentError, match="factors"):
            call(operation=OperationDouble(_description(True, factors=FACTORS)), factors=factors)
    with pytest.raises(DescriptionError, match="factors"):
        _description(False, factors=FACTORS)
    with pytest.raises(ElementTypeError, match="element type of G"):
        call(G=g.astype(np.float32))
