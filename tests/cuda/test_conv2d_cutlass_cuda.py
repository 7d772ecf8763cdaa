"""CUTLASS's convolutions on a GPU, every case of PyCUTLASS, against float64."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import pytest

from kronop import compiler, knobs
from kronop.args.device import default_device, target_of_device
from kronop.compiler import cutlass_headers as headers
from kronop.compiler.cuda_kernel import CudaKernel, load_cuda
from kronop.descriptions.strided import Strided
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.families.conv2d.cutlass import choice
from kronop.families.conv2d.cutlass.design import Conv2dCutlass
from kronop.families.conv2d.cutlass.hopper.design import Conv2dHopper
from kronop.families.conv2d.description import (
    Conv2dDescription,
    Conv2dProblem,
    shape_in_memory,
    shapes_of,
)
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.target import Target
from tests.conv2d_cases import BYTES, CASES, DOUBLES, ONE_CHANNEL, PROGRAMS, Case, sized
from tests.conv2d_hopper_cases import HOPPER

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(bool(headers.missing()), reason=headers.missing()),
]

_UNIT = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "int32": 0,
    "int8": 0,
}
_TF32 = 2.0**-11
# Elements before and behind a result, which no kernel may write.
_AROUND, _OUTSIDE = 64, 77
# An activation makes an error at most this much larger.
_SLOPE = 1.5
_CHANNELS = (2, 16, 9, 64)
# What tests of PyCUTLASS leave out: groups, flipped filters, dilation, slices of strided dgrad.
_MORE = tuple(
    (name, sized(_CHANNELS, (64, 3, 3), (1, 1), stride, **more))
    for stride in ((1, 1), (2, 2), (3, 2))
    for name, more in {
        "groups": {"groups": 2},
        "flipped": {"flipped": True},
        "dilated": {"dilation_h": 2, "dilation_w": 3},
        "slices": {"slices": 2},
    }.items()
)
_EVERY = {**CASES, **DOUBLES, **BYTES}


@functools.cache
def _torch() -> Any:
    return pytest.importorskip("torch")


@functools.cache
def _target() -> Target:
    return Target.parse(str(target_of_device(default_device())))


@functools.cache
def _kernel(case: Case) -> tuple[Conv2dDescription, Conv2dCutlass | Conv2dHopper, CudaKernel]:
    what, target = case.description(), _target()
    design, *_ = choice.designs(what, target)
    status = design.status(target)
    assert status, status.reason
    plan = Plan(target=target, steps=choice.steps(what, target, design))
    with knobs.using(compiler="nvrtc"):
        (binary,) = compiler.compile_sources(render(plan), target)
    return what, design, load_cuda(binary)


def _random(shape: tuple[int, ...], name: str, seed: int) -> Any:
    torch = _torch()
    generator = torch.Generator(device="cuda").manual_seed(seed)
    kind = getattr(torch, name)
    if name in ("int8", "int32"):
        return torch.randint(-8, 9, shape, device="cuda", generator=generator).to(kind)
    return torch.randn(shape, device="cuda", generator=generator).to(kind)


def _in_memory(tensor: Any, layout: Any) -> Any:
    """The tensor, channels last, as it lies in memory."""
    if not layout.interleaved:
        return tensor
    n, h, w, c = tensor.shape
    panels = tensor.reshape(n, h, w, c // 32, 32)
    order = (0, 3, 1, 2, 4) if layout.name == "TensorNC32HW32" else (3, 1, 2, 0, 4)
    return panels.permute(order).contiguous()


def _four(tensor: Any, layout: Any) -> Strided:
    steps = (0, 0, 0, 1) if layout.interleaved else tensor.stride()
    return Strided(pointer=tensor.data_ptr(), strides=tuple(steps))


def _pixels(count: int, extent: int, stride: int, first: int) -> tuple[Any, Any]:
    """The results along an axis whose pixel is in the image, and these pixels."""
    torch = _torch()
    results = torch.arange(count, device="cuda")
    pixels = results * stride + first
    inside = (pixels >= 0) & (pixels < extent)
    return results[inside], pixels[inside]


def _sums(kind: Operator, a: Any, b: Any, size: Conv2dSize) -> Any:
    """The sums of a convolution in float64, channels last."""
    torch = _torch()
    s, shapes = size, shapes_of(size)
    found = {name: item.double() for name, item in zip(kind.tensors, (a, b), strict=False)}
    of_result = kind.tensors[2]
    found[of_result] = torch.zeros(shapes[of_result], device="cuda", dtype=torch.float64)
    for group in range(s.groups):
        of_group = slice(group * s.filters, (group + 1) * s.filters)
        x = found["images"][..., group * s.channels : (group + 1) * s.channels]
        w, y = found["filters"][of_group], found["results"][..., of_group]
        for r in range(s.r):
            for t in range(s.s):
                p, h = _pixels(s.p, s.h, s.stride_h, r * s.dilation_h - s.pad_h)
                q, v = _pixels(s.q, s.w, s.stride_w, t * s.dilation_w - s.pad_w)
                tap = (s.r - 1 - r, s.s - 1 - t) if s.flipped else (r, t)
                patches, taps = x[:, h][:, :, v], w[:, tap[0], tap[1]]
                if kind is Operator.fprop:
                    y[:, p[:, None], q] += patches @ taps.T
                elif kind is Operator.dgrad:
                    x[:, h[:, None], v] += y[:, p][:, :, q] @ taps
                else:
                    taps += torch.tensordot(y[:, p][:, :, q], patches, ([0, 1, 2], [0, 1, 2]))
    return found[of_result]


def _bound(case: Case, magnitude: Any, expected: Any, alpha: float, depth: int) -> Any:
    """How much a result may differ: roundings of operands, of sums, of the result."""
    is_single = case.opcode == "TensorOp" and case.element == "float32"
    # NOTE: so many roundings of float16 would allow any result; some go up, others down.
    roundings = math.sqrt(depth) if case.sums == "float16" else depth
    relative = roundings * _UNIT[case.sums] + (2 * _TF32 if is_single else 0)
    unit = max(_UNIT[case.output], _UNIT[case.sums])
    return _SLOPE * abs(alpha) * relative * magnitude + 2 * unit * (expected.abs() + 1)


def _ended(case: Case, value: Any) -> Any:
    torch = _torch()
    if case.activation:
        return getattr(torch.nn.functional, case.activation)(value)
    if case.output == "int8":
        return value.round().clamp(-128, 127)
    return value


def _check(
    case: Case,
    size: Conv2dSize,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    vector: bool = False,
    bias: bool = False,
) -> None:
    """Runs a kernel on random tensors. `vector`: C has one row; `bias`: there is a bias."""
    torch, (what, design, kernel) = _torch(), _kernel(case)
    kind, shapes = what.conv_kind, shapes_of(size)
    a, b = (_random(shapes[name], case.element, seed) for seed, name in enumerate(kind.tensors[:2]))
    shape = shapes[kind.tensors[2]]
    last = shape[-1]
    c = _random((last,) if vector or bias else shape, case.output, 3)
    count = math.prod(shape)
    room = torch.full((count + 2 * _AROUND,), _OUTSIDE, device="cuda", dtype=c.dtype)
    d = room[_AROUND:-_AROUND].view(shape_in_memory(shape, what.Y.layout))
    held = [_in_memory(item, like.layout) for item, like in ((a, what.A), (b, what.B))]
    y = _four(d, what.Y.layout)
    empty = Conv2dProblem(
        kind=kind, size=size, a=y, b=y, y=y, z=None, bias=None, scalars=(), threads=1
    ).result
    source = c if vector or bias else _in_memory(c, what.Y.layout)
    rows = dataclasses.replace(
        empty,
        pointer=source.data_ptr(),
        strides=(0, 1) if vector or bias else empty.strides,
        batch=(empty.batch[0],),
    )
    space = torch.empty(max(1, design.workspace(size, _target(), 1)), device="cuda").byte()
    problem = Conv2dProblem(
        kind=kind,
        size=size,
        a=_four(held[0], what.A.layout),
        b=_four(held[1], what.B.layout),
        y=y,
        z=rows if beta and not bias else None,
        bias=rows if bias else None,
        scalars=(alpha, beta),
        threads=1,
        workspace=space.data_ptr(),
    )
    expected = alpha * _sums(kind, a, b, size)
    if bias or beta:
        expected = expected + (1 if bias else beta) * c.double()
    expected = _ended(case, expected)
    magnitude = _sums(kind, a.abs(), b.abs(), size)
    bound = _bound(case, magnitude, expected, alpha, kind.extents(size)[2])
    stream = torch.cuda.current_stream().cuda_stream
    results = []
    for _ in range(2):
        d.fill_(_OUTSIDE)
        for launch in design.launches(problem, _target()):
            kernel.bind(launch)(stream)
        torch.cuda.synchronize()
        results.append(d.clone())
    assert torch.equal(*results)
    assert (room[:_AROUND] == _OUTSIDE).all()
    assert (room[-_AROUND:] == _OUTSIDE).all()
    wrong = (d.double() - _in_memory(expected, what.Y.layout)).abs()
    assert not (wrong > _in_memory(bound, what.Y.layout)).any(), f"{size}: {wrong.max()}"


@pytest.mark.parametrize("name", _EVERY)
def test_sizes_of_pycutlass(name: str) -> None:
    case = _EVERY[name]
    _, design, _ = _kernel(case)
    for size, alpha, beta in case.runs():
        if design.status_of(size):
            _check(case, size, alpha, beta)
        else:
            assert size == ONE_CHANNEL


@pytest.mark.parametrize("name", _EVERY)
def test_other_sizes(name: str) -> None:
    case = _EVERY[name]
    _, design, _ = _kernel(case)
    for _, size in _MORE:
        if design.status_of(size):
            _check(case, size)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "wgrad tf32"])
def test_programs(name: str) -> None:
    program = PROGRAMS[name]
    _check(program.case, program.size, *program.scalars, vector=program.bias)


@pytest.mark.parametrize("name", ["fprop analytic", "strided dgrad", "dgrad simt"])
def test_bias(name: str) -> None:
    case = CASES[name].but(activation="silu")
    size = sized((2, 9, 8, 64), (64, 3, 3), (1, 1), (2, 2) if "strided" in name else (1, 1))
    for slices in (1, 2):
        _check(case, dataclasses.replace(size, slices=slices), 0.5, 0.0, bias=True)


@pytest.mark.parametrize("name", HOPPER)
def test_kernels_of_cutlass_3(name: str) -> None:
    if str(_target()) != "sm_90a":
        pytest.skip("warp groups multiply on sm_90a alone")
    case = HOPPER[name]
    _, design, _ = _kernel(case)
    more = [(size, 1.0, 0.0) for _, size in _MORE]
    served = [run for run in (*case.runs(), *more) if design.status_of(run[0])]
    assert len(served) > 10
    for size, alpha, beta in served:
        _check(case, size, alpha, beta)
    if case.element != "int8":
        _check(case, served[0][0], 2.0, -1.0)
        _check(case, served[3][0], 0.5, 0.0, bias=case.kind != "wgrad")
