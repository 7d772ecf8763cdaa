"""Gradients in filters in float32, whose operands become bfloat16 in threes on Hopper."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import kronop
from kronop.descriptions.activation import relu
from kronop.families.conv2d.cuda import choice
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.cuda

_SIZES = (
    Conv2dSize(2, 9, 7, 64, 72, 3, 3, pad_h=1, pad_w=1),
    Conv2dSize(3, 8, 9, 40, 16, 3, 2, pad_h=2, stride_h=2, stride_w=3),
    Conv2dSize(2, 11, 10, 72, 8, 3, 3, pad_h=1, pad_w=2, dilation_h=2, dilation_w=3),
    Conv2dSize(5, 9, 9, 68, 132, 1, 1, stride_h=2, stride_w=2),
    Conv2dSize(3, 33, 65, 3, 64, 7, 7, pad_h=3, pad_w=3, stride_h=2, stride_w=2),
    Conv2dSize(3, 20, 20, 128, 256, 3, 3, pad_h=1, pad_w=1, groups=2),
    Conv2dSize(2, 14, 14, 128, 128, 3, 3, pad_h=1, pad_w=1, groups=32),
    Conv2dSize(8, 28, 28, 128, 128, 3, 3, pad_h=1, pad_w=1),
    Conv2dSize(8, 28, 28, 512, 256, 1, 1),
    Conv2dSize(1, 7, 8, 5, 7, 3, 3, pad_h=1, pad_w=1),
)


def _operation(size: Conv2dSize, activation: bool = False) -> kronop.Conv2dOperation:
    a, b = (
        kronop.TensorDescription(kronop.float32, kronop.TensorNHWC, math.gcd(4, count))
        for count in (size.k, size.c)
    )
    y = kronop.TensorDescription(kronop.float32, kronop.TensorNHWC)
    sums = kronop.float32
    epilogue = kronop.LinearCombination(sums, 1, sums, sums)
    if activation:
        epilogue = kronop.LinearCombinationGeneric(relu(sums), sums, 1, sums, sums)
    return kronop.Conv2dOperation(Operator.wgrad, None, "cuda", None, a, b, y, None, epilogue)


def _shapes(size: Conv2dSize) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (size.n, size.p, size.q, size.k), (size.n, size.h, size.w, size.c)


def _exact(size: Conv2dSize, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found = torch.nn.grad.conv2d_weight(
        b.permute(0, 3, 1, 2).double(),
        (size.k, size.channels, size.r, size.s),
        a.permute(0, 3, 1, 2).double(),
        stride=(size.stride_h, size.stride_w),
        padding=(size.pad_h, size.pad_w),
        dilation=(size.dilation_h, size.dilation_w),
        groups=size.groups,
    )
    return found.permute(0, 2, 3, 1)


@pytest.mark.parametrize("size", _SIZES, ids=Conv2dSize.told)
def test_small_integers(size: Conv2dSize) -> None:
    """Whose sums are exact, with C, a bias, an activation, and so many slices as are asked for."""
    a, b = (torch.randint(-2, 3, shape, device="cuda").float() for shape in _shapes(size))
    exact = _exact(size, a, b)
    for slices, activation in ((1, False), (5, True)):
        own = replace(size, slices=slices)
        operation = _operation(own, activation)
        c = torch.randint(-3, 4, exact.shape, device="cuda").float()
        bias = torch.randint(-3, 4, exact.shape[-1:], device="cuda").float()
        output_op = operation.epilogue_type(2, 3)
        arguments = kronop.Conv2dArguments(
            operation, own, A=a, B=b, C=c, output_op=output_op, bias=bias
        )
        operation.run(arguments)
        wanted = 2 * exact + 3 * c.double() + bias.double()
        wanted = wanted.relu() if activation else wanted
        assert (arguments.D.double() == wanted).all(), operation.plan_for(own)


@pytest.mark.parametrize("size", _SIZES, ids=Conv2dSize.told)
@pytest.mark.parametrize("shift", [0, 1])
def test_errors(size: Conv2dSize, shift: int) -> None:
    """Those of float32: sums of 32 products round as seldom as blocks of a vectorised sum do."""
    a, b = (torch.randn(shape, device="cuda") + shift for shape in _shapes(size))
    operation = _operation(size)
    arguments = kronop.Conv2dArguments(operation, size, A=a, B=b)
    operation.run(arguments)
    scale = _exact(size, a.abs(), b.abs())
    rounded = 2**-24 * (16 + math.sqrt(size.n * size.p * size.q))
    assert ((arguments.D - _exact(size, a, b)).abs() <= rounded * scale).all()


@pytest.mark.parametrize("value", [math.inf, math.nan, 3.4028234e38, 2.0**-140])
def test_hostile_values(value: float) -> None:
    """One of them makes no other row wrong, and its own NaN only if it is not finite."""
    size = _SIZES[7]
    a, b = (torch.rand(shape, device="cuda") / 2 + 0.25 for shape in _shapes(size))
    a[:, :, :, 5] = 0
    a[2, 3, 4, 5] = value
    operation = _operation(size)
    arguments = kronop.Conv2dArguments(operation, size, A=a, B=b)
    operation.run(arguments)
    found, exact = arguments.D.double(), _exact(size, a, b)
    if math.isfinite(value):
        # Numbers of bfloat16 are multiples of 2^-133.
        assert (found[5] - exact[5]).abs().max() <= abs(value) * 2**-22 + 2.0**-133
    else:
        assert not found[5][exact[5] != 0].isfinite().any()
    rest = [row for row in range(size.k) if row != 5]
    assert (found[rest] - exact[rest]).abs().max() <= 2**-20 * exact[rest].abs().max()


def test_what_runs() -> None:
    """Warp groups, where there are any and tensor maps read the operands."""
    operation = _operation(_SIZES[7])
    plan = operation.plan_for(_SIZES[7])
    assert choice.supports(operation.description, operation.target)
    is_hopper = torch.cuda.get_device_capability() == (9, 0)
    assert ("three planes of bfloat16" in str(plan)) == is_hopper
