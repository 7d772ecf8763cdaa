"""CUTLASS's convolutions through NVRTC, and the problems that they take; no GPU is needed."""

from __future__ import annotations

import dataclasses

import pytest

import kronop
from kronop import compiler, knobs
from kronop.compiler import cutlass_headers as headers
from kronop.descriptions.strided import Strided
from kronop.emit.plan import Plan
from kronop.emit.render import render
from kronop.families.conv2d.cutlass import choice, launching
from kronop.families.conv2d.cutlass.design import Conv2dCutlass
from kronop.families.conv2d.cutlass.hopper.design import Conv2dHopper
from kronop.families.conv2d.description import Conv2dProblem, shapes_of
from kronop.families.conv2d.size import Conv2dSize
from kronop.target import Target
from tests.conv2d_cases import BYTES, CASES, COMMON, DOUBLES, ONE_CHANNEL, PROGRAMS, Case, sized
from tests.conv2d_hopper_cases import HOPPER

pytestmark = pytest.mark.skipif(bool(headers.missing()), reason=headers.missing())

_EVERY = {**CASES, **DOUBLES, **BYTES}
# A kernel takes four seconds, of CUTLASS 3.x seventeen, those of single elements up to forty.
_FEW = ("fprop analytic", "strided dgrad", "wgrad f16", "hopper wgrad")
# Beside 128 sums: iterators of strided dgrad keep two sets of coordinates, those of panels and of
# single elements have many predicates.
_SPILLING = {"strided dgrad": 512, "wgrad tf32, 1": 512, "s8 panels": 384, "few channels, 1": 160}
_MOST_SPILLED = 128
_SM80 = Target.parse("sm_80")


def _design(case: Case) -> Conv2dCutlass | Conv2dHopper:
    found, *_ = choice.designs(case.description(), _SM80)
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "compiled" in metafunc.fixturenames:
        is_full = metafunc.config.getoption("--full")
        metafunc.parametrize("compiled", {**_EVERY, **HOPPER} if is_full else _FEW)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_kernels_compile(compiled: str, target: str) -> None:
    if target == "sm_80" and (compiled not in _FEW or compiled in HOPPER):
        pytest.skip("one GPU for each kernel is enough")
    goal, case = Target.parse(target), {**_EVERY, **HOPPER}[compiled]
    plan = Plan(target=goal, steps=choice.steps(case.description(), goal, _design(case)))
    with knobs.using(compiler="nvrtc"):
        (binary,) = compiler.compile_sources(render(plan), goal)
    used = [most for name, most in _SPILLING.items() if compiled.startswith(name)]
    assert binary.resources.spill_bytes in range(max(used, default=_MOST_SPILLED) + 1)
    assert not binary.resources.static_shared_bytes


def test_every_case_is_a_kernel_that_takes_its_sizes() -> None:
    assert len(CASES) == 43
    programs = {name: program.case for name, program in PROGRAMS.items()}
    for _name, case in {**_EVERY, **programs}.items():
        design = _design(case)
        assert design.status(_SM80), design.status(_SM80).reason
        refused = [size for size, *_ in case.runs() if not design.status_of(size)]
        assert refused == (list(case.sizes) if case.sizes == (ONE_CHANNEL,) else [])


def _problem(case: Case, size: Conv2dSize) -> Conv2dProblem:
    """A problem in made-up memory, without C."""
    kind = case.description().conv_kind
    tensors = []
    for place, name in enumerate(kind.tensors):
        _, second, third, last = shapes_of(size)[name]
        steps = (second * third * last, third * last, last, 1)
        tensors.append(Strided(pointer=(place + 1) << 20, strides=steps))
    a, b, y = tensors
    return Conv2dProblem(
        kind=kind,
        size=size,
        a=a,
        b=b,
        y=y,
        z=None,
        bias=None,
        scalars=(1.0, 0.0),
        threads=1,
        workspace=1 << 24,
    )


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        ("fprop f16", sized((1, 8, 8, 12), (8, 3, 3)), "C of 12"),
        ("fprop f16", sized((1, 40, 8, 8), (8, 33, 3)), "33 x 3 pixels"),
        ("fprop f16", sized((1, 8, 8, 24), (24, 3, 3), groups=2), "C of a group of 12"),
        ("fixed channels, 4", sized((1, 8, 8, 8), (8, 3, 3)), "8 channels"),
        ("dgrad f16", sized((1, 8, 8, 8), (8, 3, 3), stride=(1, 2)), "strides of 1 x 2"),
        ("strided dgrad", sized((1, 8, 8, 8), (8, 3, 3), dilation_w=2), "dilation of 1 x 2"),
        (
            "strided dgrad",
            sized((1, 8, 8, 8), (8, 1, 1), stride=(3, 3), flipped=True),
            "beyond flipped filters",
        ),
        ("s8 panels", sized((1, 8, 8, 48), (64, 3, 3)), "C of 48"),
    ],
)
def test_problems_that_a_kernel_does_not_take_are_refused(
    name: str, size: Conv2dSize, reason: str
) -> None:
    design = _design(_EVERY[name])
    assert reason in design.status_of(size).reason
    with pytest.raises(kronop.ArgumentError, match=reason):
        design.launches(_problem(_EVERY[name], size), _SM80)


def test_memory_of_other_strides_is_refused() -> None:
    case, size = CASES["fprop f16"], COMMON[0]
    problem = _problem(case, size)
    odd = dataclasses.replace(problem.a, strides=(*problem.a.strides[:2], 60, 1))
    with pytest.raises(kronop.ArgumentError, match="memory of A"):
        _design(case).launches(dataclasses.replace(problem, a=odd), _SM80)
    turned = dataclasses.replace(problem.y, strides=(*problem.y.strides[:2], 1, 8))
    with pytest.raises(kronop.ArgumentError, match="memory of D"):
        _design(case).launches(dataclasses.replace(problem, y=turned), _SM80)


@pytest.mark.parametrize(
    ("name", "slices", "taps", "tiles"),
    [
        ("fprop f16", 5, 9, 1),  # 288 channels are five tiles of 64.
        ("dgrad f16", 3, 9, 1),  # 160 filters are three.
        ("wgrad f16", 3, 1, 1),  # 187 results are three.
        ("s8 panels", 1, 9, 5),
        ("few channels, 2", 41, 1, 1),
    ],
)
def test_slices_are_whole_tiles(name: str, slices: int, taps: int, tiles: int) -> None:
    size = sized((1, 17, 11, 288), (160, 3, 3), (1, 1), slices=201)
    design = _design(_EVERY[name])
    assert isinstance(design, Conv2dCutlass)
    cut = launching.cut_of(design, size)
    assert (cut.slices, cut.taps, cut.depth) == (slices, taps, tiles)
    assert bool(design.workspace(size, _SM80, 1)) == (slices > 1)
    assert len(design.launches(_problem(_EVERY[name], size), _SM80)) == 1 + (slices > 1)
