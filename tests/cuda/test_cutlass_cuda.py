"""CUTLASS's matrix products on a GPU, every row of PyCUTLASS's tables, against float64."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import kronop
from kronop import compiler, knobs
from kronop.args.device import default_device, target_of_device
from kronop.compiler import cutlass_headers as headers
from kronop.compiler.cuda_kernel import CudaKernel, load_cuda
from kronop.descriptions.datatype import DataType
from kronop.descriptions.math_instruction import MathOperation, OpClass
from kronop.descriptions.strided import Strided
from kronop.emit.render import render
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize
from kronop.target import Target
from tests.cutlass_cases import CASES, DENSE, HOPPER, INSTRUCTIONS, INTERLEAVED, ROW, Case

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(bool(headers.missing()), reason=headers.missing()),
]

# No multiples of tiles, but of every alignment; a product of few tiles and one of a single step.
SIZES = ((1008, 784, 528), (512, 512, 512), (16, 32, 16))
_UNIT = {
    kronop.float64: 2.0**-53,
    kronop.float32: 2.0**-24,
    kronop.float16: 2.0**-11,
    kronop.bfloat16: 2.0**-8,
    kronop.int32: 0.0,
    kronop.int8: 0.0,
}
# What an operand is rounded to, where its instruction does not take it as it is.
_ROUNDED = {
    MathOperation.multiply_add: 2.0**-11,
    MathOperation.multiply_add_fast_f32: 2.0**-21,
    MathOperation.multiply_add_fast_f16: 2.0**-11,
    MathOperation.multiply_add_fast_bf16: 2.0**-8,
}
# An activation makes an error at most this much larger: the steepest slope is hardswish's. Scaled
# values differ by roundings of functions besides.
_SLOPE, _ROUNDINGS = 1.5, 8


@functools.cache
def _torch() -> Any:
    return pytest.importorskip("torch")


@functools.cache
def _target() -> str:
    return str(target_of_device(default_device()))


@functools.cache
def _kernel(name: str) -> CudaKernel:
    target = _target()
    with knobs.using(compiler="nvrtc"):
        (binary,) = compiler.compile_sources(render(DENSE[name].plan(target)), Target.parse(target))
    return load_cuda(binary)


def _matrix(shape: tuple[int, ...], element: DataType, layout: Any, seed: int) -> Any:
    """Random values in the layout, inside of a larger tensor whose other elements are NaN or 99."""
    torch = _torch()
    generator = torch.Generator(device="cuda").manual_seed(seed)
    kind = getattr(torch, element.name)
    *lead, rows, columns = shape
    pitched = (*lead, rows, columns + 32) if layout is ROW else (*lead, columns, rows + 32)
    if element.kind == "int":
        room = torch.full(pitched, 99, device="cuda", dtype=kind)
        values = torch.randint(-8, 9, shape, device="cuda", generator=generator).to(kind)
    else:
        room = torch.full(pitched, math.nan, device="cuda", dtype=kind)
        values = torch.randn(shape, device="cuda", generator=generator).to(kind)
    inside = room[..., :columns] if layout is ROW else room[..., :rows].mT
    inside.copy_(values)
    return inside


def _strided(tensor: Any) -> Strided:
    *lead, row, column = tensor.stride()
    return Strided(pointer=tensor.data_ptr(), strides=(row, column), batch=tuple(lead))


def _values(tensor: Any, element: DataType) -> Any:
    torch = _torch()
    wide = torch.int64 if element.kind == "int" else torch.float64
    return tensor.to(wide).cpu().numpy()


def _bound(case: Case, a: Any, b: Any, expected: Any, scalars: tuple[float, ...], k: int) -> Any:
    """How much a result may differ: roundings of operands, of sums, of the result."""
    operand = 0.0
    if case.opclass is OpClass.TensorOp and case.element is kronop.float32:
        operand = _ROUNDED[case.operation]
    magnitude = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    # NOTE: k roundings of float16 would allow any result; some go up, others down.
    roundings = math.sqrt(k) if case.sums is kronop.float16 else max(k, 1)
    sums = (2 * operand + operand**2 + roundings * _UNIT[case.sums]) * magnitude
    unit = max(_UNIT[case.output], _UNIT[kronop.float32] if case.sums.kind == "float" else 0)
    if case.sums is kronop.float64:
        unit = _UNIT[kronop.float64]
    scaled = abs(scalars[0]) * magnitude + 8 * abs(scalars[1]) + 1
    fine = _UNIT[kronop.float64 if case.sums is kronop.float64 else kronop.float32]
    return _SLOPE * abs(scalars[0]) * sums + unit * np.abs(expected) + _ROUNDINGS * fine * scaled


def _run(name: str, problem: GemmProblem) -> None:
    torch, target = _torch(), Target.parse(_target())
    stream = torch.cuda.current_stream().cuda_stream
    for launch in DENSE[name].design().launches(problem, target):
        _kernel(name).bind(launch)(stream)
    torch.cuda.synchronize()


def _check(
    name: str,
    size: tuple[int, int, int],
    *,
    scalars: tuple[float, ...] = (1.0, 0.0),
    lead: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    slices: int = 1,
    bias: bool = False,
    in_place: bool = False,
) -> None:
    torch, case = _torch(), DENSE[name]
    (m, n, k), batch = size, np.broadcast_shapes(*lead)
    description = case.description()
    a = _matrix((*lead[0], m, k), case.element, case.layouts[0], 1)
    b = _matrix((*lead[1], k, n), case.element, case.layouts[1], 2)
    d = _matrix((*batch, m, n), case.output, case.layouts[2], 3)
    c = _matrix((*batch, m, n), case.output, case.layouts[2], 4) if scalars[1] else None
    if in_place and c is not None:
        d = c
    else:
        d.fill_(99 if case.output.kind == "int" else math.nan)
    read = None if c is None else _values(c, case.output)
    row = _matrix((1, n), case.output, ROW, 5)[0].contiguous() if bias else None
    full = [item.expand(*batch, *item.shape[-2:]) for item in (a, b)]
    design = case.design()
    wanted = design.workspace(
        GemmSize(m, n, k, math.prod(batch), slices), Target.parse(_target()), 1
    )
    workspace = torch.full((max(wanted, 16),), 0xFF, dtype=torch.uint8, device="cuda")
    arguments = description.epilogue.epilogue_type(*scalars)
    around = _around(d)
    before = around.clone()
    _run(
        name,
        GemmProblem(
            m=m,
            n=n,
            k=k,
            batch=tuple(batch),
            a=_strided(full[0]),
            b=_strided(full[1]),
            y=_strided(d),
            z=None if c is None else _strided(c),
            bias=row if row is None else Strided(pointer=row.data_ptr(), strides=(0, 1)),
            scalars=arguments.scalars,
            threads=1,
            slices=slices,
            workspace=workspace.data_ptr(),
        ),
    )
    wide_a, wide_b = _values(full[0], case.element), _values(full[1], case.element)
    shift = None if row is None else _values(row, case.output)
    expected = description.reference(wide_a, wide_b, read, arguments, shift)
    got = _values(d, case.output)
    if case.output.kind == "int":
        np.testing.assert_array_equal(got, expected)
    else:
        error = np.abs(got - expected)
        assert np.all(error <= _bound(case, wide_a, wide_b, expected, scalars, k)), error.max()
    same = torch.equal(before.nan_to_num(7), around.nan_to_num(7))
    assert same, "memory beside D was written"


def _around(inside: Any) -> Any:
    """The elements of the tensor that is around a matrix: those of its pitch."""
    base = inside._base
    by_rows = inside.stride(-1) == 1
    extent = inside.shape[-1] if by_rows else inside.shape[-2]
    return base[..., extent:]


@pytest.fixture(autouse=True)
def _of_this_gpu(request: pytest.FixtureRequest) -> None:
    """Skips kernels that only sm_90a runs."""
    params = getattr(request.node, "callspec", None)
    if params and params.params.get("name") in HOPPER and _target() != "sm_90a":
        pytest.skip("warp groups multiply on sm_90a alone")


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", DENSE)
def test_every_kernel(name: str, size: tuple[int, int, int]) -> None:
    _check(name, size)


@pytest.mark.parametrize("name", DENSE)
def test_every_kernel_adds_a_source(name: str) -> None:
    whole = DENSE[name].sums.kind == "int"
    _check(name, SIZES[0], scalars=(2.0, -1.0) if whole else (1.5, -0.75))
    _check(name, SIZES[1], scalars=(1.0, 1.0), in_place=True)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("slices", [2, 5])
def test_slices(name: str, slices: int) -> None:
    _check(name, SIZES[0], slices=slices)
    _check(name, SIZES[0], slices=slices, scalars=(2.0, 1.0), bias=True)


@pytest.mark.parametrize("name", DENSE)
def test_batches_of_any_strides(name: str) -> None:
    size = (272, 144, 96)
    _check(name, size, lead=((3,), (3,)), scalars=(1.0, 1.0))
    _check(name, size, lead=((5, 1), (3,)))
    _check(name, size, lead=((), (2, 3)))


@pytest.mark.parametrize("name", [item for item in DENSE if DENSE[item].layouts[2] is ROW])
def test_a_bias_alone(name: str) -> None:
    _check(name, SIZES[0], bias=True)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_no_steps_give_the_epilogue_of_zero(name: str) -> None:
    _check(name, (128, 128, 0), scalars=(1.0, 2.0))


@pytest.mark.parametrize("name", ["f16", "tf32", "s8", "simt f32"])
def test_results_are_the_same_each_time(name: str) -> None:
    torch, case = _torch(), CASES[name]
    m, n, k = SIZES[0]
    a = _matrix((m, k), case.element, case.layouts[0], 1)
    b = _matrix((k, n), case.element, case.layouts[1], 2)
    results, slices = [], 5
    wanted = case.design().workspace(GemmSize(m, n, k, slices=slices), Target.parse(_target()), 1)
    workspace = torch.empty(wanted, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        d = _matrix((m, n), case.output, case.layouts[2], 3)
        problem = GemmProblem(
            m=m,
            n=n,
            k=k,
            batch=(),
            a=_strided(a),
            b=_strided(b),
            y=_strided(d),
            z=None,
            bias=None,
            scalars=(1.0, 0.0),
            threads=1,
            slices=slices,
            workspace=workspace.data_ptr(),
        )
        _run(name, problem)
        results.append(d.clone())
    assert all(torch.equal(results[0], item) for item in results)


@pytest.mark.parametrize("name", ["f16 warps along k", "fast_bf16", "hopper f16 tall"])
def test_operations_choose_what_only_cutlass_has(name: str) -> None:
    torch, case = _torch(), DENSE[name]
    what, (m, n, k) = case.description(), SIZES[0]
    given = (what.tile, what.A, what.B, what.Y, what.epilogue)
    operation = kronop.GemmOperationUniversal(_target(), *given)
    a = _matrix((m, k), case.element, case.layouts[0], 1)
    b = _matrix((k, n), case.element, case.layouts[1], 2)
    expected = _values(a, case.element) @ _values(b, case.element)
    for slices in (1,) if name in HOPPER else (1, 3):
        d = _matrix((m, n), case.output, case.layouts[2], 3).fill_(math.nan)
        arguments = kronop.GemmArguments(operation=operation, A=a, B=b, D=d, split_k_slices=slices)
        operation.run(arguments)
        torch.cuda.synchronize()
        bound = _bound(case, *(_values(x, case.element) for x in (a, b)), expected, (1, 0), k)
        assert np.all(np.abs(_values(d, case.output) - expected) <= bound)


@pytest.mark.parametrize("size", [(208, 160, 224), (1000, 96, 32), (64, 1024, 4096)], ids=str)
@pytest.mark.parametrize("beta", [0, -1])
@pytest.mark.parametrize("name", INTERLEAVED)
def test_interleaved_products(name: str, beta: int, size: tuple[int, int, int]) -> None:
    torch, what, (m, n, k) = _torch(), INTERLEAVED[name].description(), size
    random = np.random.default_rng(0)
    kinds = [getattr(np, item.element.name) for item in (what.A, what.B, what.Y)]
    matrices = [
        random.integers(-8, 9, shape).astype(kind)
        for shape, kind in zip(((m, k), (k, n), (m, n)), kinds, strict=True)
    ]
    a, b, c = (
        kronop.gemm.interleave(torch.from_numpy(item).cuda(), described.layout)
        for item, described in zip(matrices, (what.A, what.B, what.Y), strict=True)
    )
    for tile in (what.tile, None):
        given = (tile, what.A, what.B, what.Y, what.epilogue)
        operation = kronop.GemmOperationUniversal(_target(), *given)
        d = torch.full_like(c, 99)
        output_op = operation.epilogue_type(1, beta)
        arguments = kronop.GemmArguments(
            operation, A=a, B=b, C=c if beta else None, D=d, output_op=output_op
        )
        operation.run(arguments)
        exact = what.reference(*matrices, output_op)
        got = kronop.gemm.deinterleave(d, what.Y.layout).cpu().numpy()
        np.testing.assert_array_equal(got, exact)


def test_interleaved_batches_and_parts_of_tensors() -> None:
    torch, what = _torch(), INTERLEAVED["s8 interleaved"].description()
    m, n, k = 96, 64, 128
    a = torch.randint(-8, 9, (3, m + 16, k), device="cuda").to(torch.int8)
    b = torch.randint(-8, 9, (k, n + 32), device="cuda").to(torch.int8)
    panels_a = kronop.gemm.interleave(a, what.A.layout)[..., 16:, :]
    panels_b = kronop.gemm.interleave(b, what.B.layout)[:, 32:]
    operation = kronop.GemmOperationUniversal(
        _target(), what.tile, what.A, what.B, what.Y, what.epilogue
    )
    arguments = kronop.GemmArguments(operation, A=panels_a, B=panels_b)
    operation.run(arguments)
    got = kronop.gemm.deinterleave(arguments.D, what.Y.layout).cpu().numpy()
    exact = _values(a[:, 16:], what.A.element) @ _values(b[:, 32:], what.B.element)
    np.testing.assert_array_equal(got, np.clip(exact, -128, 127))
