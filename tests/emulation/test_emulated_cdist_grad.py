"""Gradients of distances run on the CPU from the CUDA headers, against the float64 reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.descriptions.datatype import DataType, bfloat16, float16, float32, float64
from kronop.descriptions.strided import NOTHING, Strided
from kronop.families.distance.cuda.gradient_products import GradientProducts
from kronop.families.distance.declaration import GRADIENT
from kronop.families.distance.description import Value
from kronop.families.distance.form import TermKind
from kronop.families.distance.gradient_description import (
    DistanceGradientDescription,
    GradientProblem,
    kind_of,
)
from kronop.families.distance.gradient_size import GradientSize
from kronop.target import Target
from tests import distance_gradients, support
from tests.emulation.emulator import Emulator

_TARGET = Target.parse("sm_90a")
_EMITTER = GRADIENT.emitter(_TARGET)


def strides_of(array: Any) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def _strided(array: Any, own: int = 2) -> Strided:
    strides = strides_of(array)
    return Strided(pointer=array.ctypes.data, strides=strides[-own:], batch=strides[:-own])


def description(
    power: Any, element: DataType, expanded: bool = False
) -> DistanceGradientDescription:
    plain = kronop.TensorDescription(element)
    return DistanceGradientDescription(
        math=_EMITTER.instruction(element, _TARGET),
        tile=None,
        **dict.fromkeys("ABCDY", plain),
        epilogue=support.linear(element),
        power=kind_of(power),
        expanded=expanded,
    )


def run(
    folder: Path,
    power: Any,
    sizes: tuple[int, int, int, int],
    element: DataType = float32,
    *,
    powers: Any = None,
    batch: tuple[int, ...] = (),
    weighted: bool = True,
    layout: str = "rows",
    source: bool = False,
    change: Any = None,
    expanded: bool = False,
) -> None:
    """Runs and compares; `sizes` are o, n, k and m, `powers` those of the batch if they are in
    memory, and `change` is called with the operands."""
    o, n, k, m = sizes
    random = np.random.default_rng(3)
    what = description(power, element, expanded)
    is_relative = what.power is TermKind.Relative
    plan = _EMITTER.plan(what, _TARGET, GradientSize(m, n, k, o).bucket())
    assert isinstance(plan.steps[0].design, GradientProducts) == expanded
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    shapes = ((k, m), (n, k), (o, k), (n, m))
    a, b, c, d = (
        distance_gradients.array(random, (*batch, *shape), element, layout) for shape in shapes
    )
    if change is not None:
        change(a, b, c, d)
    largest = distance_gradients.largest_of(b, d) if is_relative else None
    y = support.poison((*batch, o, n, m), element)
    z = support.random_array(random, y.shape, element) if source else None
    scalars = what.epilogue.epilogue_type(2, -3 if source else 0)
    value = Value(0.0 if what.power is not TermKind.General or powers is not None else power)
    if powers is not None:
        powers = np.asarray(powers, support.numpy_type(what.math.element_accumulator))
        value = Value(memory=_strided(powers[..., None], 1))
    problem = GradientProblem(
        m=m,
        n=n,
        k=k,
        o=o,
        batch=batch,
        a=_strided(a),
        b=_strided(b),
        c=_strided(c) if weighted else NOTHING,
        d=_strided(d),
        y=_strided(y, 3),
        z=None if z is None else _strided(z, 3),
        power=value,
        scalars=scalars.scalars,
        threads=0,
        largest=_strided(largest) if is_relative else None,
    )
    emulator.run(plan.launches(problem))
    weights = c if weighted else np.ones(c.shape)
    p = powers if powers is not None else power if what.power is TermKind.General else None
    distance_gradients.check(y, what, a, b, weights, d, z, scalars, p, largest)


@pytest.mark.parametrize("power", [0.5, 1, 1.5, 2, 2.5, 3, 4, 1.3, 0.7])
def test_powers(folder: Path, power: Any) -> None:
    def spoil(a: Any, b: Any, c: Any, d: Any) -> None:
        b[1, 3] = d[2, 5] = np.nan

    for change in (None, spoil):
        run(folder, power, (4, 70, 21, 66), change=change)


@pytest.mark.parametrize("element", [float64, float16, bfloat16])
@pytest.mark.parametrize("power", [1, 2, 1.3])
def test_element_types(folder: Path, power: Any, element: DataType) -> None:
    run(folder, power, (4, 33, 19, 67), element, source=True)


@pytest.mark.parametrize("outputs", [1, 2, 3, 7, 9])
def test_outputs(folder: Path, outputs: int) -> None:
    run(folder, 1, (outputs, 5, 30, 70), weighted=outputs > 1)
    run(folder, 2, (outputs, 40, 9, 3), source=True)
    if outputs == 1:
        run(folder, 1, (1, 66, 30, 7))
        run(folder, 1.3, (1, 66, 30, 7), float64, weighted=False)


@pytest.mark.parametrize("sizes", [(1, 5, 20, 300), (4, 16, 9, 150), (8, 7, 33, 70)])
@pytest.mark.parametrize("element", [float32, float64])
def test_few_rows(folder: Path, element: DataType, sizes: Any) -> None:
    for layout in ("rows", "columns"):
        run(folder, 1, sizes, element, layout=layout)


@pytest.mark.parametrize("layout", distance_gradients.LAYOUTS)
def test_layouts_and_batches(folder: Path, layout: str) -> None:
    run(folder, 1.3, (2, 9, 17, 21), layout=layout, batch=(2, 3), powers=np.full((2, 3), 1.7))
    run(folder, 1.3, (2, 9, 17, 21), batch=(3,), powers=[0.6, 1.0, 4.2])


@pytest.mark.parametrize("element", [float32, float64, float16])
def test_relative_powers(folder: Path, element: DataType) -> None:
    def meet(a: Any, b: Any, c: Any, d: Any) -> None:
        for item in (b, d):
            item[...] = np.round(8 * item) / 8  # Their differences are not rounded in 16 bits.
        d[..., 0] = b[..., 0]  # A pair without a difference.

    given = {"batch": (3,), "powers": [0.6, 1.0, 4.2], "change": meet}
    run(folder, TermKind.Relative, (2, 9, 37, 21), element, **given)
    run(folder, TermKind.Relative, (2, 9, 37, 21), element, **given, layout="columns")


@pytest.mark.parametrize("power", [1, 2, 1.3])
def test_values_that_are_no_numbers(folder: Path, power: Any) -> None:
    def spoil(a: Any, b: Any, c: Any, d: Any) -> None:
        b[1, 3] = d[2, 5] = np.nan

    def spoil_more(a: Any, b: Any, c: Any, d: Any) -> None:
        spoil(a, b, c, d)
        b[4, 0] = b[5, 1] = d[4, 1] = d[6, 2] = np.inf
        b[7, 2] = d[7, 8] = -np.inf

    change = spoil_more if power == 1 else spoil
    run(folder, power, (2, 9, 17, 21), change=change)
    run(folder, power, (1, 9, 17, 21), change=change)
    if power == 1.3:  # 1 is among the powers of its kind.
        run(folder, power, (2, 9, 17, 21), powers=1.0, change=spoil_more)


@pytest.mark.parametrize("sizes", [(4, 130, 300, 70), (1, 128, 131, 65), (5, 129, 128, 64)])
def test_squares_multiplied_out(folder: Path, sizes: Any) -> None:
    def move(a: Any, b: Any, c: Any, d: Any) -> None:
        b += 64
        d += 64

    run(folder, 2, sizes, expanded=True)
    run(folder, 2, sizes, expanded=True, source=True, layout="columns", change=move)
    if sizes[0] == 1:
        run(folder, 2, sizes, expanded=True, weighted=False, batch=(2,))


def test_nothing_to_sum_up(folder: Path) -> None:
    run(folder, 1, (2, 9, 0, 21), source=True)
    run(folder, 1.3, (2, 9, 0, 21))
