"""Matrix products on a GPU: every tile of warp groups, groups, graphs, tensors that change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.core.calls import epilogue_of
from kronop.descriptions.datatype import result_type
from kronop.descriptions.math_instruction import MathInstruction
from kronop.families.gemm.cuda import choice, warp_group_choice
from kronop.families.gemm.cuda.warp_group_design import GemmWarpGroup
from kronop.families.gemm.size import GemmSize
from kronop.target import Target
from tests import support
from tests.families.distances import drawn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cuda

_TARGET = Target.parse("sm_90a")
_ELEMENTS = ("float16", "bfloat16", "float32", "int8", "float8_e4m3fn", "float8_e5m2")
_TF32 = MathInstruction(
    [16, 8, 8], kronop.float32, kronop.float32, kronop.float32, kronop.OpClass.TensorOp
)
_needs_hopper = pytest.mark.skipif(
    support.cuda_target() != "sm_90a", reason="warp groups multiply on sm_90a alone"
)


def _whole(shape: tuple[int, ...], dtype: Any) -> Any:
    """-1, 0 and 1, so few of which are not 0 that all sums are exact."""
    signs = torch.randint(-1, 2, shape, device="cuda")
    return (signs * (torch.rand(shape, device="cuda") < 4 / max(shape[-1], 1) ** 0.5)).to(dtype)


def _operation(element: str, math: MathInstruction | None, layout: Any = kronop.RowMajor) -> Any:
    kind = getattr(kronop, element)
    operands = [
        kronop.TensorDescription(kind, layout, 16 // kind.bytes)
        for layout in (kronop.RowMajor, kronop.ColumnMajor)
    ]
    result = kronop.TensorDescription(result_type(kind), layout)
    given = (*operands, result, epilogue_of(kind, result, None))
    if math is None:
        return kronop.GemmOperationUniversal("sm_90a", None, *given)
    tile = kronop.TileDescription([128, 128, 32], 4, [4, 1, 1], math)
    return kronop.GemmOperationUniversal("sm_90a", tile, *given)


@_needs_hopper
@pytest.mark.parametrize("element", [*_ELEMENTS, "tf32"])
def test_every_tile_of_warp_groups(element: str) -> None:
    """Blocks have several tiles, of which some are not whole."""
    steered = _TF32 if element == "tf32" else None
    operation = _operation("float32" if element == "tf32" else element, steered)
    m, n, k = 3000, 2056, 528
    dtype = getattr(torch, "float32" if element == "tf32" else element)
    a, b = _whole((m, k), dtype), _whole((n, k), dtype).t()
    wanted = a.double() @ b.double()
    what = replace(operation.description, tile=None)
    every = choice.plans(what, _TARGET, 100, None)
    plans = [plan for plan in every if isinstance(plan.steps[-1].design, GemmWarpGroup)]
    made = len(list(warp_group_choice.designs(what, _TARGET)))
    assert len(plans) == made == (10 if element in ("float16", "bfloat16", "int8", "tf32") else 2)
    for plan in plans:
        arguments = kronop.GemmArguments(operation, A=a, B=b)
        arguments.D.fill_(77)
        served = operation.serve(plan)
        arguments.run(served.kernels, None, served)
        exact = wanted.to(arguments.D.dtype).double()
        assert bool((arguments.D.double() == exact).all()), str(plan.steps[-1].design)


@_needs_hopper
@pytest.mark.parametrize(("m", "n"), [(1, 33), (65, 33), (65, 130), (1, 1)])
@pytest.mark.parametrize("layout", [kronop.RowMajor, kronop.ColumnMajor])
@pytest.mark.parametrize("element", ["bfloat16", "int8", "float8_e5m2"])
def test_nothing_behind_a_row_is_written(element: str, layout: Any, m: int, n: int) -> None:
    """Rows of results begin at multiples of 16 bytes, and end within 16 bytes."""
    operation = _operation(element, None, layout)
    dtype = getattr(torch, element)
    turned = layout is kronop.ColumnMajor
    a, b = _whole((m, 64), dtype), _whole((n, 64), dtype).t()
    wanted = a.double() @ b.double()
    size = GemmSize(m, n, 64)
    plans = choice.plans(operation.description, _TARGET, 100, size)
    plans = [plan for plan in plans if isinstance(plan.steps[-1].design, GemmWarpGroup)]
    assert plans
    for plan in plans:
        of_output = getattr(torch, operation.description.Y.element.name)
        shape = (n, m) if turned else (m, n)
        memory, out = drawn.room(shape, str(of_output)[6:], "cuda", columns=False, aligned=True)
        out = out.t() if turned else out
        arguments = kronop.GemmArguments(operation, A=a, B=b, D=out)
        served = operation.serve(plan)
        arguments.run(served.kernels, None, served)
        assert bool((out.double() == wanted.to(of_output).double()).all()), str(plan)
        out.fill_(drawn.GUARD)
        assert bool((memory == drawn.GUARD).all()), str(plan)


_TREE = kronop.epilogue_visitor(
    lambda accum, c, bias, scale: (
        accum + c * scale + bias,
        accum,
        kronop.maximum(accum + bias, axis="row"),
        kronop.sum(accum, axis="column"),
    ),
    kinds={"c": "tensor", "bias": "row", "scale": "column"},
    results=("D", "sums", "largest", "total"),
)


@_needs_hopper
@pytest.mark.parametrize("layout", [kronop.RowMajor, kronop.ColumnMajor])
@pytest.mark.parametrize("element", [*_ELEMENTS, "tf32"])
def test_every_tile_of_warp_groups_takes_trees(element: str, layout: Any) -> None:
    """The last tiles are not whole, and many threads join the parts of a result."""
    m, n, k = 3000, 2056, 528
    tile = None
    if element == "tf32":
        element, tile = "float32", kronop.TileDescription([128, 128, 32], 2, [4, 1, 1], _TF32)
    kind, dtype = getattr(kronop, element), getattr(torch, element)
    output = result_type(kind)
    operands = [
        kronop.TensorDescription(kind, order, 16 // kind.bytes)
        for order in (kronop.RowMajor, kronop.ColumnMajor)
    ]
    sums = MathInstruction.tensor_op(kind).element_accumulator
    result = kronop.TensorDescription(output, layout)
    epilogue = _TREE(output, 1, sums, kronop.float32)
    operation = kronop.GemmOperationUniversal(
        "sm_90a", tile, *operands, result, epilogue, visitor=True
    )
    of_output = getattr(torch, output.name)
    a, b = _whole((m, k), dtype), _whole((n, k), dtype).t()
    c, bias, scale = (_whole(shape, of_output) for shape in ((m, n), (n,), (m,)))
    exact = a.double() @ b.double()
    wanted = {
        "D": exact + c.double() * scale.double()[:, None] + bias.double(),
        "sums": exact,
        "largest": (exact + bias.double()).amax(1),
        "total": exact.sum(0),
    }
    what = replace(operation.description, tile=None)
    every = choice.plans(what, _TARGET, 100, None)
    plans = [plan for plan in every if isinstance(plan.steps[-1].design, GemmWarpGroup)]
    assert plans
    for plan in plans:
        results = {
            name: torch.full(item.shape, 77, device="cuda", dtype=of_output)
            if item.ndim == 2
            else torch.full(item.shape, 77.0, device="cuda")
            for name, item in wanted.items()
        }
        if layout is kronop.ColumnMajor:
            results["D"] = results["D"].t().contiguous().t()
        output_op = operation.epilogue_type(c=c, bias=bias, scale=scale, **results)
        arguments = kronop.GemmArguments(operation, A=a, B=b, output_op=output_op)
        served = operation.serve(plan)
        arguments.run(served.kernels, None, served)
        for name, item in wanted.items():
            found = results[name].double()
            assert bool((found == item).all()), f"{name} by {plan.steps[-1].design}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_repeated_calls_follow_their_tensors(dtype: Any) -> None:
    kept = []
    for times in range(6):
        a, b = _whole((300, 264), dtype), _whole((264, 520), dtype)
        kept += [a, b]  # So that the next ones lie elsewhere.
        found = kronop.gemm.matmul(a, b, alpha=2.0)
        assert bool((found.double() == 2 * (a.double() @ b.double())).all()), times


def test_a_graph_replays_products() -> None:
    a, b = _whole((300, 264), torch.float16), _whole((264, 520), torch.float16)
    out = torch.empty(300, 520, dtype=torch.float16, device="cuda")
    kronop.gemm.matmul(a, b, out=out)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        kronop.gemm.matmul(a, b, out=out)
    a.copy_(_whole((300, 264), torch.float16))
    out.fill_(77)
    graph.replay()
    assert bool((out.double() == a.double() @ b.double()).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_groups(dtype: Any) -> None:
    """Of more products than one launch holds, with empty ones among them."""
    random = np.random.default_rng(9)
    sizes = [tuple(8 * random.integers(0, 40, 3)) for _ in range(120)]
    a = [_whole((int(m), int(k)), dtype) for m, _, k in sizes]
    b = [_whole((int(k), int(n)), dtype) for _, n, k in sizes]
    c = [_whole((int(m), int(n)), dtype) for m, n, _ in sizes]
    found = kronop.gemm.grouped_matmul(a, b, c, beta=3.0)
    for x, y, z, d in zip(a, b, c, found, strict=True):
        wanted = (x.double() @ y.double() + 3 * z.double()).to(dtype)
        assert bool((d == wanted).all())


def test_operands_that_no_map_follows() -> None:
    """Rows that repeat, backward strides, and addresses between multiples of 16 bytes."""
    base = _whole((70, 268), torch.float16)
    b = _whole((264, 136), torch.float16)
    for a in (base[:1, :264].expand(70, 264), base[:, 1:265], base.flip(0)[:, :264]):
        found = kronop.gemm.matmul(a, b)
        assert bool((found.double() == a.double() @ b.double()).all())
    operation = _operation("float16", None)
    with pytest.raises(kronop.ArgumentError, match="positive strides"):
        kronop.GemmArguments(operation, A=base[:1, :264].expand(70, 264), B=b.t().contiguous().t())
