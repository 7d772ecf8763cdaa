"""Parameters of products on CPUs whose operands are gathered; see gemm_gathered.hpp."""

from __future__ import annotations

import dataclasses
from typing import Any

from kronop.artifacts import Block, Field, KernelSignature, Scalar
from kronop.descriptions.gathered import DIGITS, Digits, Gathered
from kronop.descriptions.strided import Strided
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.x86.cutting import Cut

# Numbers of the struct Gathering: four triples for each index, and four pairs.
_NUMBERS = 2 * 4 * DIGITS + 4 * 2


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
    pairs = (operand.first, operand.extents, operand.strides, operand.every)
    triples = (*_triples(operand.rows), *_triples(operand.columns))
    return tuple(number for group in (*triples, *pairs) for number in group)


def _triples(digits: Digits) -> tuple[tuple[int, int, int], ...]:
    return digits.extents, digits.steps, digits.u, digits.v
