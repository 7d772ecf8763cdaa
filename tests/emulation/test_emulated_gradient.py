"""Gradients of weights run on the CPU from the CUDA headers, against the float64 reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.descriptions.datatype import (
    DataType,
    Layout,
    RowMajor,
    bfloat16,
    float16,
    float32,
    float64,
)
from kronop.descriptions.math_instruction import MathInstruction, OpClass
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.families.ksparse.cuda.gradient_ends import AddShares
from kronop.families.ksparse.cuda.gradient_group import GradientGroup
from kronop.families.ksparse.cuda.gradient_sums import GradientSums
from kronop.families.ksparse.declaration import GRADIENT
from kronop.families.ksparse.gradient_description import (
    KSparseGradientDescription,
    KSparseGradientProblem,
)
from kronop.target import Target
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_kernels import (
    linear,
    matrix,
    poisoned,
    stored,
    values,
    wide,
)

_TARGET = Target.parse("sm_90a")
_UNIT = {float64: 2.0**-53, float32: 2.0**-24, float16: 2.0**-11, bfloat16: 2.0**-8}


def run(
    folder: Path,
    pattern: tuple[int, int, int, int],
    rows: int,
    element: DataType = float32,
    *,
    tied: bool = True,
    batch_last: bool = False,
    alignment: int = 1,
    layouts: tuple[Layout, Layout] = (RowMajor, RowMajor),
    products: int | None = None,
    source: bool = False,
    output: DataType | None = None,
    math_instruction: MathInstruction | None = None,
    unit: float | None = None,
    tile: TileDescription | None = None,
    factors: tuple[tuple[int, int], ...] = (),
    target: Target = _TARGET,
    design: type[GradientSums] = GradientSums,
) -> None:
    """Runs and compares; `layouts` are those of X and G, `design` the way to sum up."""
    random = np.random.default_rng(7)
    math_instruction = math_instruction or MathInstruction.tensor_op(element)
    output = output or element
    epilogue = linear(output)
    description = KSparseGradientDescription(
        math=math_instruction,
        tile=tile,
        X=TensorDescription(element, layouts[0], alignment),
        G=TensorDescription(element, layouts[1], alignment),
        Y=TensorDescription(output),
        epilogue=epilogue,
        pattern=pattern,
        tied=tied,
        batch_last=batch_last,
        products=products,
        factors=factors,
    )
    plan = GRADIENT.emitters["cuda"].plan(description, target)
    assert any(isinstance(step.design, design) for step in plan.steps)
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    x = stored(values(random, description.x_shape(rows), element), layouts[0])
    g = stored(values(random, description.shapes(rows)["G"], element), layouts[1])
    y = poisoned(description.y_shape(rows), output)
    z = values(random, y.shape, output) if source else None
    scalars = epilogue.epilogue_type(2, 3 if source else 0)
    # Of an empty batch there are sums as well.
    needed = plan.runnable.workspace(rows, target, 1)
    workspace = np.full(needed + 256, 255, np.uint8)
    lead = description.lead
    # Transposed, as those of gekmm are.
    matrices = [values(random, shape[::-1], element).T for shape in factors]
    problem = KSparseGradientProblem(
        rows=rows,
        x=matrix(x, batch_last, lead),
        g=matrix(g, batch_last, lead),
        y=_weights(y, description),
        z=None if z is None else _weights(z, description),
        scalars=scalars.scalars,
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
        factors=tuple(matrix(item, False) for item in matrices),
    )
    launches = plan.launches(problem)
    # Shares are waited for by who adds them up, where warp groups made them.
    made = {type(plan.steps[launch.step].design): launch.overlaps for launch in launches}
    assert made[AddShares] == (GradientGroup in made)
    emulator.run(launches)
    others = [wide(item) for item in matrices]
    expected = description.reference(
        wide(x), wide(g), None if z is None else wide(z), scalars, others
    )
    magnitude = description.reference(
        np.abs(wide(x)), np.abs(wide(g)), None, scalars, [np.abs(item) for item in others]
    )
    unit = unit or 8 * _UNIT[math_instruction.element_accumulator]
    bound = unit * magnitude + 2 * _UNIT[output] * np.abs(expected) + 1e-30
    assert (np.abs(wide(y) - expected) <= bound).all()


def _weights(array: Any, description: KSparseGradientDescription) -> Strided:
    strides = [stride // array.itemsize for stride in array.strides]
    lead = strides.pop(0) if description.lead else 0
    if description.factors:
        return Strided(pointer=array.ctypes.data, strides=(0, 0, 0, 0, *strides))
    if description.tied:
        q, p = strides
        return Strided(pointer=array.ctypes.data, strides=(lead, 0, 0, p, q))
    i, p, q, l = strides
    return Strided(pointer=array.ctypes.data, strides=(lead, i, l, p, q))


@pytest.mark.parametrize("element", [float16, float32])
@pytest.mark.parametrize("pattern", [(2, 96, 96, 1), (1, 96, 384, 3)])
def test_tiles_with_fewer_pieces_than_threads(
    folder: Path, pattern: Any, element: DataType
) -> None:
    run(folder, pattern, 200, element, tied=False, alignment=16 // element.bytes)


@pytest.mark.covering(
    tied=[True, False],
    batch_last=[False, True],
    pattern=[
        (1, 8, 8, 1),
        (3, 5, 7, 5),
        (2, 16, 48, 2),
        (1, 33, 31, 1),
        (2, 8, 8, 40),
        (1, 3, 1, 3),
    ],
)
def test_patterns(folder: Path, pattern: Any, batch_last: bool, tied: bool) -> None:
    run(folder, pattern, 37, tied=tied, batch_last=batch_last)
    run(folder, pattern, 100, tied=tied, batch_last=batch_last, source=True)


@pytest.mark.covering(
    tied=[True, False],
    batch_last=[False, True],
    pattern=[(1, 64, 64, 1), (2, 32, 64, 8), (1, 32, 32, 20), (1, 128, 24, 4), (2, 4, 8, 2)],
)
def test_wide_copies(folder: Path, pattern: Any, batch_last: bool, tied: bool) -> None:
    run(folder, pattern, 60, tied=tied, batch_last=batch_last, alignment=4)


@pytest.mark.covering(
    element=[float64, float16, bfloat16],
    tied=[True, False],
    batch_last=[False, True],
    pattern=[(1, 64, 64, 1), (1, 16, 32, 18), (3, 5, 7, 5), (2, 16, 8, 4)],
)
def test_element_types(
    folder: Path, pattern: Any, batch_last: bool, tied: bool, element: DataType
) -> None:
    alignment = 16 // element.bytes if pattern[1] % 8 == 0 else 1
    run(folder, pattern, 16, element, tied=tied, alignment=alignment, batch_last=batch_last)
    if element.bytes == 2:
        run(folder, pattern, 9, element, tied=tied, output=float32)


def test_tf32_rounds_its_operands(folder: Path) -> None:
    tf32 = MathInstruction([16, 8, 8], float32, float32, float32, OpClass.TensorOp)
    run(folder, (1, 16, 16, 1), 100, math_instruction=tf32, unit=2.0**-11)
    with pytest.raises(AssertionError):
        run(folder, (1, 16, 16, 1), 100, math_instruction=tf32)


@pytest.mark.parametrize("layouts", [(x, g) for x in Layout for g in Layout])
@pytest.mark.parametrize("batch_last", [False, True])
def test_every_layout(folder: Path, batch_last: bool, layouts: tuple[Layout, Layout]) -> None:
    for tied in (True, False):
        run(folder, (2, 8, 12, 4), 20, tied=tied, batch_last=batch_last, layouts=layouts)
        run(
            folder,
            (2, 8, 12, 4),
            20,
            tied=tied,
            batch_last=batch_last,
            layouts=layouts,
            alignment=4,
        )


def test_products_are_apart(folder: Path) -> None:
    run(folder, (2, 3, 5, 2), 20, products=3, source=True)
    run(folder, (2, 3, 5, 2), 20, products=3, tied=False)
    run(folder, (2, 3, 5, 2), 20, products=1)


@pytest.mark.parametrize("element", [float32, float64, bfloat16])
@pytest.mark.parametrize(
    "factors",
    [
        ((8, 8), (8, 8)),
        ((2, 3), (5, 1), (3, 4)),
        ((2, 2),) * 6,
        ((1, 1), (40, 7)),
        ((1, 2), (3, 1)),
    ],
)
def test_factors(folder: Path, factors: Any, element: DataType) -> None:
    rows, columns = (int(np.prod(sizes)) for sizes in zip(*factors, strict=True))
    output = float32 if element.bytes == 2 else element
    options = {"factors": factors, "output": output}
    run(folder, (2, columns, rows, 3), 23, element, **options)
    run(folder, (1, columns, rows, 1), 40, element, source=True, **options)
    run(folder, (1, columns, rows, 1), 0, element, source=True, **options)


def test_nothing_is_summed_up_to_zero(folder: Path) -> None:
    run(folder, (2, 3, 5, 2), 0, source=True)


@pytest.mark.parametrize(
    ("shape", "stages", "warps"),
    [
        ([64, 64, 32], 4, [2, 2, 1]),
        ([64, 64, 64], 2, [1, 2, 2]),
        ([8, 16, 128], 3, [1, 1, 4]),
        ([32, 128, 32], 2, [1, 2, 2]),
    ],
)
@pytest.mark.parametrize("pattern", [(1, 70, 40, 1), (2, 30, 30, 24)])
def test_tiles(folder: Path, pattern: Any, shape: Any, stages: int, warps: Any) -> None:
    tile = TileDescription(shape, stages, warps, MathInstruction.tensor_op(float32))
    run(folder, pattern, 130, tile=tile, source=True)


@pytest.mark.spread(element=[float64, float32, bfloat16], target=["sm_75", "sm_70"])
def test_products_that_tensor_cores_lack(tmp_path: Path, element: DataType, target: str) -> None:
    """The threads of a warp compute them."""
    run(tmp_path, (2, 5, 9, 3), 37, element, target=Target.parse(target))
