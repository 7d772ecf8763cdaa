"""Convolutions by warp groups, run on the CPU from the same headers, against the reference."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kronop.descriptions.activation import gelu
from kronop.descriptions.datatype import (
    FLOAT8,
    DataType,
    RowMajor,
    bfloat16,
    float16,
    float32,
    int8,
    result_type,
)
from kronop.descriptions.epilogue import Epilogue, LinearCombination, LinearCombinationGeneric
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.tile import TileDescription
from kronop.emit.design import Pipeline
from kronop.emit.plan import Plan
from kronop.families.conv2d.cuda import warp_group_choice
from kronop.families.conv2d.cuda.joined import Conv2dJoined
from kronop.families.conv2d.cuda.warp_group_choice import AnyConv2d
from kronop.families.conv2d.cuda.warp_group_design import Conv2dWarpGroup
from kronop.families.conv2d.cuda.warp_group_slices import Conv2dSlices
from kronop.families.conv2d.cuda.warp_group_split import split_problems
from kronop.families.conv2d.cuda.widened import Conv2dWidened
from kronop.families.conv2d.description import Conv2dDescription, Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator, StrideSupport, TensorNHWC
from kronop.families.gemm.cuda.warp_group_split import SplitProblem, pitch_of
from kronop.target import Target
from tests.emulation.emulator import Emulator
from tests.emulation.test_emulated_gemm_warp_group import math_of
from tests.emulation.test_emulated_kernels import agree, poisoned, stored, values, wide

# Few multiprocessors: blocks take several tiles.
TARGET = replace(Target.parse("sm_90a"), cores=4)
Tile = tuple[int, int, bool]
_SHARED: Tile = (128, 128, False)


def run(
    folder: Path,
    kind: Operator,
    size: Conv2dSize,
    *,
    element: DataType = float16,
    tile: Tile = _SHARED,
    cluster: int = 1,
    stages: int | None = None,
    source: bool = False,
    bias: bool = False,
    epilogue: Epilogue | None = None,
    slices: bool = False,
    unity: bool = False,
    gap: int = 0,
    split: bool = False,
    widened: bool = False,
    joined: bool = False,
) -> None:
    """Runs a tile (rows, columns, whether teams take tiles in turn), and compares.

    Args:
        slices: sums are cut into slices.
        unity: strides of 1 are promised.
        gap: channels of the result that are left alone behind those that are written.
        split: of three TF32 products.
        widened: images are widened first, whatever their alignment.
        joined: several groups are convolved as one.
    """
    random = np.random.default_rng(11)
    sums = math_of(element, split).element_accumulator
    epilogue = epilogue or LinearCombination(result_type(element), 1, sums, sums)
    output = epilogue.element_output
    what = description(kind, element, epilogue, unity=unity, split=split)
    sort = Conv2dWidened if widened else Conv2dJoined if joined else Conv2dSlices
    if cluster > 1 or stages:  # Which only described tiles have.
        m, n, alternate = tile
        warps, slab = (4 if alternate else 8, 1, 1), 128 // element.bytes
        asked = TileDescription((m, n, slab), stages, warps, what.math, (cluster, 1, 1))
        what = replace(what, tile=asked)
    design = next(
        item
        for item in warp_group_choice.designs(what, TARGET)
        if isinstance(item, sort) == (slices or widened or joined)
        and has_tile(item, tile, cluster)
        and (not joined or item.status_of(size))
    )
    assert design.status(TARGET)
    assert design.status_of(size), design.status_of(size)
    plan = Plan(
        target=TARGET,
        steps=warp_group_choice.steps(what, TARGET, design),
        pipeline=design if isinstance(design, Pipeline) else None,
    )
    emulator = Emulator(plan, folder)
    if emulator.gathered:
        return
    shapes = shapes_of(size)
    a, b = (stored(values(random, shapes[of], element), RowMajor) for of in kind.tensors[:2])
    *lead, last = shapes[kind.tensors[2]]
    room = poisoned((*lead, last + gap), output)
    y = room[..., :last]
    z = stored(values(random, y.shape, output), RowMajor) if source else None
    added = values(random, (last,), output) if bias else None
    scalars = epilogue.epilogue_type(2, 3 if source else 0)
    workspace = np.full(plan.workspace_bytes(size, 1) + 256, 255, np.uint8)
    problem = Conv2dProblem(
        kind=kind,
        size=size,
        a=in_memory(a),
        b=in_memory(b),
        y=in_memory(y),
        z=None if z is None else _matrix(kind, z, size),
        bias=None if added is None else _row(kind, added, size),
        scalars=scalars.scalars,
        threads=1,
        workspace=workspace.ctypes.data + -workspace.ctypes.data % 256,
    )
    emulator.run(plan.launches(problem))
    expected = what.reference(
        wide(a),
        wide(b),
        None if z is None else wide(z),
        scalars,
        None if added is None else wide(added),
        size,
    )
    print(kind, y.shape, np.abs(wide(y) - expected).max(), np.abs(expected).max())
    agree(y, expected, output, float16 if element is float32 and not split else sums)
    if gap and output.kind == "float":
        assert np.isnan(wide(room[..., last:])).all()


def description(
    kind: Operator,
    element: DataType,
    epilogue: Epilogue,
    *,
    unity: bool = False,
    split: bool = False,
) -> Conv2dDescription:
    operand = TensorDescription(element, TensorNHWC, 16 // element.bytes)
    return Conv2dDescription(
        conv_kind=kind,
        iterator_algorithm=None,
        math=math_of(element, split),
        tile=None,
        A=operand,
        B=operand,
        Y=TensorDescription(epilogue.element_output, TensorNHWC),
        stride_support=StrideSupport.Unity if unity else None,
        epilogue=epilogue,
    )


def has_tile(design: AnyConv2d, tile: Tile, cluster: int) -> bool:
    product = design if isinstance(design, Conv2dWarpGroup) else design.product
    own = product.wrapped
    return (own.m, own.n, own.alternate) == tile and own.cluster == cluster


def in_memory(array: Any) -> Strided:
    return Strided(
        pointer=array.ctypes.data, strides=tuple(item // array.itemsize for item in array.strides)
    )


def _matrix(kind: Operator, array: Any, size: Conv2dSize) -> Strided:
    """A matrix like the result, with the stride between groups."""
    row = array.shape[-1] if kind is not Operator.wgrad else math.prod(array.shape[1:])
    each = {
        Operator.fprop: size.filters,
        Operator.dgrad: size.channels,
        Operator.wgrad: size.filters * row,
    }[kind]
    return Strided(pointer=array.ctypes.data, strides=(row, 1), batch=(each,))


def _row(kind: Operator, array: Any, size: Conv2dSize) -> Strided:
    each = size.filters if kind is Operator.fprop else size.channels
    return Strided(pointer=array.ctypes.data, strides=(0, 1), batch=(each,))


# Every kind of geometry: (N, H, W, C, K, R, S) and the rest by name.
_SIZES = (
    Conv2dSize(2, 9, 7, 64, 72, 3, 3, pad_h=1, pad_w=1),
    Conv2dSize(3, 8, 9, 40, 16, 3, 2, pad_h=2, pad_w=0, stride_h=2, stride_w=3),
    Conv2dSize(2, 11, 10, 72, 8, 3, 3, pad_h=1, pad_w=2, dilation_h=2, dilation_w=3, flipped=True),
    Conv2dSize(2, 10, 11, 16, 136, 2, 3, pad_h=1, stride_h=2, dilation_w=2, flipped=True),
    Conv2dSize(5, 9, 9, 72, 64, 1, 1, stride_h=2, stride_w=2),
    Conv2dSize(1, 7, 8, 8, 8, 3, 3, p=9, q=5, pad_h=1, pad_w=1, dilation_h=2, stride_w=2),
)


@pytest.mark.parametrize("kind", Operator)
def test_geometries(folder: Path, kind: Operator) -> None:
    for index, size in enumerate(_SIZES):
        source, bias = index % 2 == 0, index % 3 == 0 and kind is not Operator.wgrad
        slices = kind is Operator.wgrad
        run(folder, kind, size, source=source, bias=bias, slices=slices)


@pytest.mark.parametrize("tile", [(256, 64, False), (128, 64, True), (256, 128, False)])
@pytest.mark.parametrize("kind", Operator)
def test_tiles_of_convolutions(folder: Path, kind: Operator, tile: Tile) -> None:
    slices = kind is Operator.wgrad
    run(folder, kind, _SIZES[0], element=bfloat16, tile=tile, slices=slices)


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
def test_clusters(folder: Path, kind: Operator) -> None:
    for size in _SIZES[:2]:
        run(folder, kind, size, tile=(128, 256, False), cluster=2, bias=True)


@pytest.mark.parametrize("kind", Operator)
def test_groups(folder: Path, kind: Operator) -> None:
    size = Conv2dSize(2, 6, 5, 128, 192, 3, 2, pad_h=1, stride_w=2, groups=2)
    size = size if kind is not Operator.dgrad else replace(size, k=256)
    for slices in (False, True) if kind is Operator.wgrad else (False,):
        bias = kind is not Operator.wgrad
        run(folder, kind, size, source=True, bias=bias, slices=slices)


# Groups of 4 channels, 2 filters and 6 channels each, and all groups as one.
_SMALL_GROUPS = (
    Conv2dSize(2, 6, 5, 128, 128, 3, 2, pad_h=1, groups=32),
    Conv2dSize(1, 6, 7, 128, 64, 3, 3, pad_w=1, stride_h=2, stride_w=2, groups=32, flipped=True),
    Conv2dSize(1, 6, 5, 48, 24, 2, 3, dilation_w=2, groups=8),
)


@pytest.mark.parametrize("size", _SMALL_GROUPS, ids=str)
@pytest.mark.parametrize("kind", Operator)
def test_groups_side_by_side(folder: Path, kind: Operator, size: Conv2dSize) -> None:
    bias = kind is not Operator.wgrad
    run(folder, kind, size, source=True, bias=bias, joined=True)


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
def test_three_products_of_groups(folder: Path, kind: Operator) -> None:
    run(folder, kind, _SMALL_GROUPS[1], element=float32, split=True, bias=True, joined=True)


def test_strides_of_1_and_results_with_gaps(folder: Path) -> None:
    run(folder, Operator.dgrad, _SIZES[0], unity=True, source=True, gap=1)
    run(folder, Operator.dgrad, _SIZES[1], source=True, gap=3)
    run(folder, Operator.fprop, replace(_SIZES[0], k=31), gap=2, bias=True)


@pytest.mark.parametrize("element", [float32, int8, *FLOAT8])
def test_other_types(folder: Path, element: DataType) -> None:
    run(folder, Operator.fprop, replace(_SIZES[0], c=176), element=element, bias=True)


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.dgrad])
def test_three_products(folder: Path, kind: Operator) -> None:
    for size in (*_SIZES, Conv2dSize(1, 9, 8, 3, 5, 3, 3)):
        run(folder, kind, size, element=float32, split=True, bias=True, cluster=2)
    size = Conv2dSize(2, 6, 5, 64, 64, 3, 2, pad_h=1, stride_w=2, groups=2)
    run(folder, kind, size, element=float32, split=True, source=True)


_CONVERTED: list[Tile] = [_SHARED, (128, 64, False), (64, 128, True), (64, 64, True)]


@pytest.mark.parametrize("tile", _CONVERTED)
def test_six_products(folder: Path, tile: Tile) -> None:
    """Of gradients in filters in float32, each number as three of bfloat16."""
    for index, size in enumerate(_SIZES[: 6 if tile == _SHARED else 2]):
        for slices in (True, False) if index == 0 else (True,):
            run(
                folder,
                Operator.wgrad,
                size,
                element=float32,
                split=True,
                tile=tile,
                slices=slices,
                source=True,
            )


def test_six_products_of_fewer_stages(folder: Path) -> None:
    own: dict[str, Any] = {"element": float32, "split": True, "slices": True}
    run(folder, Operator.wgrad, _SIZES[0], stages=2, **own)


def test_six_products_of_groups_and_of_widened_images(folder: Path) -> None:
    groups = Conv2dSize(2, 6, 5, 128, 192, 3, 2, pad_h=1, stride_w=2, groups=2)
    own: dict[str, Any] = {"element": float32, "split": True}
    run(folder, Operator.wgrad, groups, slices=True, **own)
    run(folder, Operator.wgrad, _SMALL_GROUPS[0], joined=True, source=True, **own)
    run(folder, Operator.wgrad, replace(_FEW[0], slices=3), widened=True, **own)


# First layers of networks, in small, and other images of few channels.
_FEW = (
    Conv2dSize(2, 37, 70, 3, 16, 7, 7, pad_h=3, pad_w=3, stride_h=2, stride_w=2),
    Conv2dSize(2, 12, 21, 4, 8, 4, 4, stride_h=4, stride_w=4),
    Conv2dSize(1, 9, 10, 5, 8, 2, 3, pad_w=2, stride_h=3, dilation_w=2),
    Conv2dSize(3, 4, 5, 1, 8, 1, 1, stride_w=2),
    Conv2dSize(1, 8, 9, 16, 24, 3, 3, p=9, q=5, pad_h=1, pad_w=1, slices=3),
)


@pytest.mark.parametrize("kind", [Operator.fprop, Operator.wgrad])
def test_widened_images(folder: Path, kind: Operator) -> None:
    for index, size in enumerate(_FEW):
        bias = index % 2 == 0 and kind is Operator.fprop
        run(folder, kind, size, source=index % 3 == 0, bias=bias, widened=True)


def test_widened_filters(folder: Path) -> None:
    """Flipped ones, any number of them, and of other types."""
    size = replace(_FEW[0], h=11, w=9, k=5, flipped=True)
    for element, split in ((float16, False), (float32, True), (float32, False), (int8, False)):
        own = replace(size, dilation_w=2 if split else 1)
        run(folder, Operator.fprop, own, element=element, split=split, widened=True, bias=True)


def test_pieces_behind_what_filters_meet(folder: Path) -> None:
    """Lines that whole pieces of zeros fill up to those of the cache: shared memory ends before
    them."""
    size = Conv2dSize(1, 38, 38, 10, 8, 7, 7, pad_h=3, pad_w=3)
    run(folder, Operator.fprop, size, element=float32, split=True, widened=True)


def test_slices_that_threads_share(folder: Path) -> None:
    size = Conv2dSize(4, 40, 40, 3, 8, 2, 2, slices=40)
    run(folder, Operator.wgrad, size, source=True, widened=True)
    run(folder, Operator.wgrad, replace(size, c=8), slices=True)


def test_sums_of_nothing(folder: Path) -> None:
    size = Conv2dSize(0, 9, 9, 8, 16, 3, 3)
    run(folder, Operator.wgrad, size, slices=True, source=True)
    run(folder, Operator.wgrad, replace(size, c=3), widened=True, source=True)


def test_split_operands_with_gaps(folder: Path) -> None:
    """Problems that split, of lines that do not follow each other."""
    random = np.random.default_rng(2)
    room = random.standard_normal((3, 5, 8, 7), np.float32)
    for part in (room, room[:, :4], room[:, :, :6], room[:2, 1:4, 2:6, :5], room[:1, :, :1]):
        found = np.zeros((2, *part.shape[:3], pitch_of(part.shape[3])), np.float32)
        for item in split_problems(in_memory(part), part.shape, found.ctypes.data):
            assert item.depth == part.shape[3]
            _copy(item)
        np.testing.assert_array_equal(found[0, ..., : part.shape[3]], part)
        np.testing.assert_array_equal(found[1, ..., : part.shape[3]], part)


def _copy(item: SplitProblem) -> None:
    """What the kernel does, but the same in both planes."""
    shape = (item.problems, item.lines, item.depth)

    def at(pointer: int, steps: tuple[int, ...]) -> Any:
        own = (ctypes.c_float * 1).from_address(pointer)
        strides = tuple(4 * step for step in steps)
        return np.lib.stride_tricks.as_strided(np.ctypeslib.as_array(own), shape, strides)

    batch, steps = item.matrix.batch[-1], item.matrix.strides
    for plane in range(2):
        to = item.address + 4 * plane * item.plane
        at(to, (item.apart, pitch_of(item.depth), 1))[...] = at(
            item.matrix.pointer, (batch, *steps)
        )


def test_an_activation(folder: Path) -> None:
    epilogue = LinearCombinationGeneric(gelu(float32), float16, 1, float32, float32)
    for kind in Operator:
        slices = kind is Operator.wgrad
        run(folder, kind, _SIZES[0], epilogue=epilogue, slices=slices)


def test_sums_of_one_piece(folder: Path) -> None:
    for tile in (_SHARED, (64, 256, True)):
        run(folder, Operator.wgrad, _SIZES[0], tile=tile, source=True)
    run(folder, Operator.wgrad, replace(_SIZES[0], slices=3), slices=True)
