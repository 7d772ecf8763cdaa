"""Convolutions of CUTLASS 3.x: what is refused, what is steered to them, how they are launched."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import kronop
from kronop.compiler import cutlass_headers as headers
from kronop.core.operation import Operation
from kronop.descriptions.datatype import DataType, float16, float32
from kronop.descriptions.math_instruction import MathInstruction
from kronop.descriptions.strided import Strided
from kronop.families.conv2d.cuda import choice as cuda_choice
from kronop.families.conv2d.cutlass import choice
from kronop.families.conv2d.cutlass.hopper.design import Conv2dHopper
from kronop.families.conv2d.description import Conv2dProblem, shapes_of
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.target import Target
from kronop.tensor_map import Im2col, TensorMap
from tests.conv2d_cases import CASES, Case, sized
from tests.conv2d_hopper_cases import HOPPER

SM_80, SM_90 = Target.parse("sm_80"), Target.parse("sm_90a")
FPROP, DGRAD, WGRAD = (HOPPER[f"hopper {kind.name}"] for kind in Operator)
Kernel, Results = kronop.KernelScheduleType, kronop.EpilogueScheduleType
LAYER = sized((4, 14, 12, 64), (96, 3, 5), (1, 2))


@pytest.fixture(autouse=True)
def _with_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "missing", lambda: "")


def _design(case: Case) -> Conv2dHopper:
    found, *_ = choice.designs(case.description(), SM_90)
    assert isinstance(found, Conv2dHopper)
    return found


def test_every_case_is_a_kernel_of_sm_90a_alone() -> None:
    for case in HOPPER.values():
        design = _design(case)
        assert design.status(SM_90), design.status(SM_90).reason
        assert design.seconds(LAYER, SM_90) > 0
        assert "sm_80 has no warp-group" in design.status(SM_80).reason


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (FPROP.but(tile=(128, 128, 32)), "tile K of 32 float16 is not 128 bytes"),
        (FPROP.but(tile=(96, 128, 64)), "tile M of 96 is no multiple of 64"),
        (FPROP.but(tile=(128, 72, 64)), "tile N of 72 is no multiple of 16"),
        (DGRAD.but(tile=(128, 96, 64)), "tile N of 96 is no multiple of 64"),
        (WGRAD.but(tile=(64, 96, 64)), "tile N of 96 is no multiple of 64"),
        (FPROP.but(tile=(128, 256, 64)), "256 sums of a tile; 128 fit"),
        (FPROP.but(stages=8), "in all 263168 bytes"),
        (FPROP.but(warps=(8, 1, 1)), r"\(8, 1, 1\) warps; convolutions of CUTLASS 3.x have \(4"),
        (FPROP.but(cluster=(1, 1, 2)), "a cluster of"),
        (FPROP.but(cluster=(4, 4, 1)), "8 at most"),
        (FPROP.but(alignments=(8, 4, 4)), "B promises 4 elements"),
        (
            HOPPER["hopper fprop tf32"].but(kind="wgrad"),
            "float32 contiguous along the sums alone, which operands of a wgrad are not",
        ),
    ],
)
def test_tiles_that_are_refused(case: Case, reason: str) -> None:
    status = _design(case).status(SM_90)
    assert not status
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(status.reason)


def _steered(case: Case, **schedules: Any) -> Operation[Any, Any]:
    tile = dataclasses.replace(case.description().tile, **schedules)
    words = {**case.words(), "tile": tile}
    names = [
        "conv_kind",
        "iterator_algorithm",
        "target",
        "tile",
        "A",
        "B",
        "C",
        "stride_support",
        "epilogue",
    ]
    return kronop.Conv2dOperation(*({**words, "target": "sm_90a"}[name] for name in names))


def test_words_that_only_cutlass_has_are_steered_to_it() -> None:
    wide = FPROP.but(cluster=(1, 1, 1))
    for case, asked, design in (
        (wide, {}, "Conv2dWarpGroup"),
        (wide, {"epilogue_schedule": Results.NoSmemWarpSpecialized}, "Conv2dHopper"),
        (wide, {"cluster_shape": (1, 2, 1)}, "Conv2dHopper"),
        (WGRAD.but(tile=(128, 128, 64)), {"cluster_shape": (2, 1, 1)}, "Conv2dHopper"),
        (CASES["fprop f16"], {"cluster_shape": (1, 1, 1)}, "Conv2dCutlass"),
    ):
        (step,) = _steered(case, **asked).plan.steps
        assert type(step.design).__name__ == design
    for asked, reason in (
        ({"tile_scheduler": kronop.TileSchedulerType.StreamK}, "computes one tile"),
        ({"tile_scheduler": kronop.TileSchedulerType.Persistent}, "computes one tile"),
        ({"epilogue_schedule": Results.TmaWarpSpecialized}, "leave from registers"),
        ({"kernel_schedule": Kernel.TmaWarpSpecializedPingpong}, "no ping-pong convolutions"),
    ):
        with pytest.raises(kronop.DescriptionError, match=reason):
            _steered(HOPPER["hopper fprop across"], **asked)


@pytest.mark.parametrize(
    ("kind", "element", "slab", "cluster", "reason"),
    [
        ("wgrad", float32, 32, (2, 1, 1), "theirs are 128 x 128 x 32 .*, in clusters of 1 along M"),
        ("wgrad", float16, 64, (2, 1, 1), "theirs are .*256 x 64 x 64.* in clusters of 1 along M"),
        ("fprop", float16, 64, (1, 2, 1), "theirs are .*256 x 64 x 64.* clusters of 1 or 2 along"),
    ],
)
def test_tiles_that_warp_groups_have_instead(
    kind: str, element: DataType, slab: int, cluster: tuple[int, int, int], reason: str
) -> None:
    math = MathInstruction.tensor_op(element)
    tile = kronop.TileDescription([128, 128, slab], None, [8, 1, 1], math, cluster)
    tensor = kronop.TensorDescription(element, kronop.TensorNHWC, 16 // element.bytes)
    sums = kronop.LinearCombination(element, 1, float32, float32)
    with pytest.raises(kronop.DescriptionError, match=reason):
        kronop.Conv2dOperation(
            Operator[kind], None, "sm_90a", tile, tensor, tensor, tensor, None, sums
        )


@pytest.mark.parametrize(
    ("case", "cluster", "changes", "reason"),
    [
        (DGRAD, (1, 2, 1), {"stride_w": 2}, "strides of 1 x 2"),
        (FPROP, (1, 2, 1), {"groups": 2}, "2 groups"),
        (FPROP, (1, 2, 1), {"slices": 2}, "sums in 2 slices"),
        (FPROP, (1, 2, 1), {"c": 60}, "C = 60"),
        (FPROP, (1, 2, 1), {"flipped": True}, "flipped filters"),
        (FPROP, (2, 1, 1), {"c": 300}, "C = 300"),
    ],
)
def test_why_a_tile_does_not_serve_a_size(
    case: Case, cluster: tuple[int, int, int], changes: dict[str, Any], reason: str
) -> None:
    what = _steered(case, cluster_shape=cluster, stages=None).description
    size = dataclasses.replace(LAYER, p=-1, q=-1, **changes)
    with pytest.raises(kronop.ArgumentError, match=reason):
        cuda_choice.plans(what, SM_90, 1, size)


def test_stages_that_are_left_out_are_as_many_as_fit() -> None:
    operation = _steered(FPROP, stages=None, warp_count=None, cluster_shape=(1, 2, 1))
    (step,) = operation.plan.steps
    assert step.design.stages == 7
    assert str(step.design) == "CUTLASS 3.x, tiles of 128 x 128 x 64, 7 stages, clusters of 1 x 2"


@pytest.mark.parametrize(
    ("case", "changes", "reason"),
    [
        (FPROP, {"groups": 2}, "2 groups"),
        (FPROP, {"slices": 3}, "sums in 3 slices"),
        (FPROP, {"flipped": True}, "flipped filters"),
        (FPROP, {"c": 60}, "C = 60 of float16"),
        (WGRAD, {"k": 4}, "K = 4 of float16"),
        (DGRAD, {"stride_w": 2}, "strides of 1 x 2"),
        (FPROP, {"stride_w": 9}, "a stride of 9 along W"),
        (FPROP, {"pad_h": 200}, "pixels from -200"),
        (FPROP, {"n": 0}, "no N"),
    ],
)
def test_problems_that_are_refused(case: Case, changes: dict[str, Any], reason: str) -> None:
    size, design = dataclasses.replace(LAYER, p=-1, q=-1, **changes), _design(case)
    assert reason in design.status_of(size).reason
    with pytest.raises(kronop.ArgumentError, match=reason):
        design.launches(_problem(case, size), SM_90)


def _problem(case: Case, size: Conv2dSize, **changes: Any) -> Conv2dProblem:
    """A problem in made-up memory, without C."""
    kind = case.description().conv_kind
    tensors = []
    for place, name in enumerate(kind.tensors):
        _, second, third, last = shapes_of(size)[name]
        steps = (second * third * last, third * last, last, 1)
        tensors.append(Strided(pointer=(place + 1) << 20, strides=steps))
    a, b, y = tensors
    given: dict[str, Any] = {"a": a, "b": b, "y": y, "z": None, "bias": None}
    more = {"scalars": (3.0, 0.0), "threads": 1, "workspace": 1 << 24}
    return Conv2dProblem(kind=kind, size=size, **{**given, **more, **changes})


def _maps(case: Case) -> tuple[TensorMap, TensorMap, tuple[int, int, int]]:
    """Those of A and B, and the grid."""
    design = _design(case)
    first, second = design.launches(_problem(case, LAYER), SM_90)
    offsets = design.signature.offsets()
    at = offsets["prepares"]
    assert (first.parameters[at], second.parameters[at]) == (1, 0)
    assert first.grid == (*case.description().tile.cluster_shape[:2], 1)
    assert design.workspace(LAYER, SM_90, 1) == 2048
    maps = {offset: item for offset, _, item in second.blocks}
    a, b = maps[offsets["a_map"]], maps[offsets["b_map"]]
    assert isinstance(a, TensorMap)
    assert isinstance(b, TensorMap)
    return a, b, second.grid


def _pixels(count: int) -> Im2col:
    """Of a padding of 1 x 2 pixels, and filters of 3 x 5."""
    return Im2col(
        lower_corner=(-2, -1),
        upper_corner=(-2, -1),
        channels_per_pixel=64,
        pixels_per_column=count,
    )


def test_maps_have_the_axes_and_shares_of_cute() -> None:
    """Blocks along N share what is copied of A, along M of B."""
    a, b, grid = _maps(FPROP.but(cluster=(2, 4, 1)))
    assert a.extents == (64, 12, 14, 4)
    assert a.box == _pixels(32)
    assert (b.extents, b.box) == ((64, 96, 5, 3), (64, 64, 1, 1))
    assert b.strides == (2 * 3 * 5 * 64, 2 * 64, 2 * 5 * 64)
    assert grid == (6, 4, 1)  # 672 pixels, 96 filters: one tile in a cluster of four.
    a, b, grid = _maps(DGRAD.but(cluster=(4, 2, 1)))
    assert a.box == _pixels(64)
    assert (a.extents, b.extents, b.box) == ((96, 12, 14, 4), (64, 96, 5, 3), (64, 16, 1, 1))
    assert grid == (8, 2, 1)
    a, b, grid = _maps(WGRAD.but(tile=(64, 64, 64)))
    assert (a.extents, a.box) == ((96, 672), (64, 32))
    assert b.box == _pixels(16)
    assert grid == (4, 16, 1)  # 15 pixels of a filter in clusters of two along N.


def test_a_bias_is_the_source() -> None:
    design, bias = _design(FPROP), Strided(pointer=1 << 23, strides=(0, 1))
    _, second = design.launches(_problem(FPROP, LAYER, bias=bias), SM_90)
    words, offsets = np.frombuffer(second.parameters, np.int64), design.signature.offsets()
    got = [int(words[offsets[name] // 8]) for name in ("source", "source_row", "source_column")]
    assert got == [1 << 23, 0, 1]
    scalars = np.frombuffer(second.parameters, np.float64)[offsets["scalars"] // 8 :]
    assert list(scalars[:2]) == [3, 1]
    both = _problem(FPROP, LAYER, bias=bias, z=_problem(FPROP, LAYER).result)
    with pytest.raises(kronop.ArgumentError, match="bias: expected none beside C"):
        design.launches(both, SM_90)


def test_results_of_uneven_pixels_are_no_matrix() -> None:
    problem = _problem(WGRAD, LAYER)
    uneven = dataclasses.replace(problem.a, strides=(2 * problem.a.strides[0], 2000, 96, 1))
    with pytest.raises(kronop.ArgumentError, match="memory of A: expected pixels that are evenly"):
        _design(WGRAD).launches(dataclasses.replace(problem, a=uneven), SM_90)
