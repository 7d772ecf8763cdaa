"""What kernels of convolutions by warp groups do not serve, and why."""

from __future__ import annotations

import math
from dataclasses import replace

from kronop.descriptions.datatype import (
    float16,
    float32,
    int8,
)
from kronop.descriptions.epilogue import LinearCombination
from kronop.emit.cuda.machine import hertz, memory_rate
from kronop.families.conv2d.cuda import warp_group_choice
from kronop.families.conv2d.cuda.joined import Conv2dJoined
from kronop.families.conv2d.cuda.warp_group_design import Conv2dWarpGroup
from kronop.families.conv2d.cuda.widened import Conv2dWidened
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.machine import MEASURED
from tests.emulation.test_emulated_conv2d_warp_group import (
    TARGET,
    description,
)


def test_what_is_not_joined() -> None:
    epilogue = LinearCombination(float16, 1, float32, float32)
    size = Conv2dSize(2, 6, 5, 128, 128, 3, 2, pad_h=1, groups=32)
    for kind, changed, why in (
        (Operator.fprop, replace(size, groups=2), "as they are"),
        (Operator.fprop, replace(size, groups=128), "one channel"),
        (Operator.fprop, replace(size, c=36, k=36, groups=6), "72 bytes"),
        (Operator.wgrad, replace(size, c=64, k=64), "4 at once"),
    ):
        designs = warp_group_choice.designs(description(kind, float16, epilogue), TARGET)
        design = next(item for item in designs if isinstance(item, Conv2dJoined))
        assert why in design.status_of(changed).reason
        assert design.seconds(changed, TARGET) == math.inf


def test_what_is_not_widened() -> None:
    epilogue = LinearCombination(float16, 1, float32, float32)
    size = Conv2dSize(2, 37, 70, 3, 16, 7, 7, pad_h=3, pad_w=3, stride_h=2, stride_w=2)
    for kind, changed, why in (
        (Operator.fprop, replace(size, c=64), "whole lines"),
        (Operator.fprop, replace(size, c=100), "no room"),
        (Operator.fprop, replace(size, c=6, k=16, groups=2), "groups"),
        (Operator.fprop, replace(size, dilation_h=2), "2 apart"),
        (Operator.fprop, replace(size, n=2**16), "bytes"),
        (Operator.wgrad, replace(size, flipped=True), "from the last"),
        (Operator.wgrad, replace(size, k=5), "K = 5"),
    ):
        what = description(kind, float16, epilogue)
        designs = warp_group_choice.designs(what, TARGET)
        design = next(item for item in designs if isinstance(item, Conv2dWidened))
        assert why in design.status_of(changed).reason
        assert design.seconds(changed, TARGET) == math.inf


def test_lines_of_widened_images() -> None:
    """Patches begin at lines of the cache, unless that takes more memory than there may be."""
    layer = Conv2dSize(64, 224, 224, 3, 64, 7, 7, pad_h=3, pad_w=3, stride_h=2, stride_w=2)
    for element, split, n, pitch, lines in (
        (float16, False, 64, 32, 230),
        (float16, False, 768, 24, 229),
        (float32, True, 128, 32, 229),
        (float32, True, 192, 24, 229),
    ):
        epilogue = LinearCombination(element, 1, float32, float32)
        size = replace(layer, n=n)
        for kind in (Operator.fprop, Operator.wgrad):
            what = description(kind, element, epilogue, split=split)
            designs = warp_group_choice.designs(what, TARGET)
            design = next(item for item in designs if isinstance(item, Conv2dWidened))
            assert design.status_of(size), design.status_of(size).reason
            if kind is Operator.fprop:
                count = (n * 112 * lines + 64 * 7) * pitch * (2 if split else 1)
                assert design.workspace(size, TARGET, 1) == count * element.bytes


def test_tiles_whose_results_are_less_than_a_line() -> None:
    """64 results of 1 byte, in a line of 128."""
    for output, has in ((float16, True), (int8, False)):
        epilogue = LinearCombination(output, 1, float32, float32)
        designs = warp_group_choice.designs(description(Operator.fprop, float16, epilogue), TARGET)
        narrow = [item for item in designs if item.product.wrapped.n == 64]
        assert narrow
        assert all(bool(item.status(TARGET)) == has for item in narrow)
    assert "64 results of int8" in narrow[0].status(TARGET).reason


def test_what_copies_of_pixels_do_not_reach() -> None:
    epilogue = LinearCombination(float16, 1, float32, float32)
    what = description(Operator.fprop, float16, epilogue)
    design = next(warp_group_choice.designs(what, TARGET))
    assert isinstance(design, Conv2dWarpGroup)
    size = Conv2dSize(1, 300, 300, 64, 64, 3, 3)
    for changed, why in (
        (replace(size, c=60), "C = 60"),
        (replace(size, stride_h=9), "stride of 9"),
        (replace(size, pad_w=130), "beyond the end along W"),
        (replace(size, dilation_h=130, p=180), "260 behind"),
        (replace(size, groups=2, c=80), "next group"),
        (replace(size, n=2**14), "1474560000 pixels, or sums or columns"),
    ):
        assert why in design.status_of(changed).reason
        assert design.seconds(changed, TARGET) == math.inf


def test_a_launch_is_modelled_once() -> None:
    """Arithmetic and memory traffic hide each other in part, and the launch not at all."""
    size = Conv2dSize(1, 4, 4, 64, 64, 1, 1)
    what = description(Operator.fprop, float16, LinearCombination(float16, 1, float32, float32))
    for design in warp_group_choice.designs(what, TARGET):
        if isinstance(design, Conv2dWarpGroup):
            own = design.wrapped
            cycles = sum(own.cycles_of_tile(64)) + own.cycles_of_results + 200
            moved = 2 * (64 * 64 + 2 * 16 * 64)
            most = MEASURED.launch + cycles / hertz(TARGET) + moved / memory_rate(TARGET)
            assert MEASURED.launch < design.seconds(size, TARGET) < most


def test_results_without_pixels() -> None:
    """A wgrad whose sums are empty has no copies, and still has results."""
    size = Conv2dSize(3, 31, 1, 64, 40, 3, 5, p=12, q=0)
    what = description(Operator.wgrad, float16, LinearCombination(float16, 1, float32, float32))
    assert not any(item.status_of(size) for item in warp_group_choice.designs(what, TARGET))
