"""Parameters of products on CPUs whose operands are gathered; see gemm_gathered.hpp."""

from __future__ import annotations

import dataclasses
from typing import Any

from kronop.artifacts import Block, Field, KernelSignature, Scalar
from kronop.descriptions.gathered import DIGITS, Digits, Gathered
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, Strided, padded
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.x86.cutting import Cut
from kronop.frozen import dataclass

# Numbers of the struct Gathering: four triples and a number for each index, four pairs, and two for
# each dimension of a batch.
_NUMBERS = 2 * (4 * DIGITS + 1) + 4 * 2 + 2 * MOST_BATCH_DIMENSIONS


def signature(plain: KernelSignature) -> KernelSignature:
    """The signature for gathered operands; `plain` is that for strided ones."""
    gathering = (Field(name, Scalar.INT64, _NUMBERS) for name in ("a_gathering", "b_gathering"))
    return KernelSignature(
        "GatheredParameters",
        (
            Block("plain", plain.size, plain.alignment, plain.pointers),
            *gathering,
            Field("staged", Scalar.INT64),
        ),
    )


def values(problem: GemmProblem, found: Cut, plain: bytes) -> dict[str, Any]:
    """The members of the parameter struct."""
    return {
        "plain": plain,
        "a_gathering": _numbers(_gathered(problem.a)),
        "b_gathering": _numbers(_gathered(problem.b)),
        "staged": found.staged,
    }


def in_memory(problem: GemmProblem) -> GemmProblem:
    """The problem with operands that have gathered ones' addresses, and no strides."""
    return dataclasses.replace(problem, a=_placed(problem.a), b=_placed(problem.b))


def _gathered(operand: Any) -> Gathered:
    assert isinstance(operand, Gathered)
    return operand


def _placed(operand: Any) -> Strided:
    return Strided(pointer=operand.pointer, strides=(0, 0), batch=operand.batch)


def _numbers(operand: Gathered) -> tuple[int, ...]:
    if _stays_inside(operand):
        operand = _without_bounds(operand)
    indices = [_index(item, operand) for item in (operand.rows, operand.columns)]
    pairs = (operand.first, operand.extents, operand.strides, operand.every)
    steps = (padded(operand.batch_u, 0), padded(operand.batch_v, 0))
    return (*indices[0], *indices[1], *(number for of in (*pairs, *steps) for number in of))


def _stays_inside(operand: Gathered) -> bool:
    """Whether every element exists; unknown, thus False, where coordinates change in a batch."""
    if operand.every != (1, 1) or operand.batch_u:
        return False
    for axis, name in enumerate("uv"):
        every = (operand.rows, operand.columns)
        ends = [
            (extent - 1) * step
            for item in every
            for extent, step in zip(item.extents, getattr(item, name), strict=True)
        ]
        least = operand.first[axis] + sum(min(0, end) for end in ends)
        most = operand.first[axis] + sum(max(0, end) for end in ends)
        if least < 0 or most >= operand.extents[axis]:
            return False
    return True


def _without_bounds(operand: Gathered) -> Gathered:
    """The same with steps in place of coordinates."""

    def moved(item: Digits) -> Digits:
        steps = [
            step + u * operand.strides[0] + v * operand.strides[1]
            for step, u, v in zip(item.steps, item.u, item.v, strict=True)
        ]
        return Digits(extents=item.extents, steps=(steps[0], steps[1], steps[2]))

    return dataclasses.replace(operand, rows=moved(operand.rows), columns=moved(operand.columns))


@dataclass(frozen=True, slots=True)
class _Digit:
    """A digit of an index: see `Digits`, and Digits of gemm_parameters.hpp."""

    extent: int
    step: int
    u: int
    v: int
    pixel: int = 0


def _index(item: Digits, operand: Gathered) -> tuple[int, ...]:
    """The numbers of the struct Digits, with as few digits, and as long runs, as there can be."""
    found: list[_Digit] = []
    for digit in map(_Digit, item.extents, item.steps, item.u, item.v):
        if digit.extent == 1:
            continue
        if found and _continues(found[-1], digit):
            digit = dataclasses.replace(digit, extent=found.pop().extent * digit.extent)
        found.append(digit)
    if len(found) > 1 and _are_pixels(found[-2], found[-1], operand):
        pixels, each = found.pop(-2).extent, found.pop().extent
        found.append(_Digit(pixels * each, 1, 0, 0, pixel=each))
    found = [_Digit(1, 0, 0, 0)] * (DIGITS - len(found)) + found
    members = zip(*((it.extent, it.step, it.u, it.v) for it in found), strict=True)
    return (*(number for member in members for number in member), found[-1].pixel)


def _continues(slow: _Digit, fast: _Digit) -> bool:
    """Whether one more of a digit adds as much as all of the next one do."""
    each = (fast.step, fast.u, fast.v)
    return (slow.step, slow.u, slow.v) == tuple(fast.extent * value for value in each)


def _are_pixels(slow: _Digit, fast: _Digit, operand: Gathered) -> bool:
    """Whether two digits are pixels side by side and numbers of a pixel, all contiguous."""
    is_row = (slow.u, slow.v, fast.u, fast.v, operand.every[1]) == (0, 1, 0, 0, 1)
    return is_row and fast.step == 1 and slow.step + operand.strides[1] == fast.extent
