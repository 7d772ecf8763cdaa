"""Modes of matrix products with their numbers: slices of sums, and batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kronop.descriptions.tile import whole
from kronop.errors import ArgumentError, ElementTypeError
from kronop.families.gemm.vocabulary import Mode
from kronop.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A mode with its numbers."""

    mode: Mode
    slices: int
    batch: int


def check_mode(mode: object, slices: object, batch: object) -> Checked:
    """The mode, where its numbers are whole and belong to it.

    Raises:
        ElementTypeError: it is no mode.
        ArgumentError: there are slices of a batch, a batch in a mode of one product, or a number
            that is not a positive integer.
    """
    if not isinstance(mode, Mode):
        raise ElementTypeError(
            "gemm_mode",
            expected=f"one of {', '.join(f'kronop.gemm.Mode.{item.name}' for item in Mode)}",
            got=repr(mode),
            hint="for example kronop.gemm.Mode.Gemm",
        )
    numbers: dict[str, Any] = {"split_k_slices": whole(slices), "batch": whole(batch)}
    batched = mode in (Mode.Batched, Mode.Array)
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ArgumentError(
                name, expected="a positive integer", got=repr(value), hint="1 for none"
            )
        if value != 1 and batched == (name == "split_k_slices"):
            others = "Gemm or GemmSplitKParallel" if batched else "Batched or Array"
            raise ArgumentError(
                f"{name} in mode {mode.name}",
                expected="1",
                got=value,
                hint=f"take gemm_mode=kronop.gemm.Mode.{others}",
            )
    return Checked(mode=mode, slices=numbers["split_k_slices"], batch=numbers["batch"])


def refuse_lists(given: Mapping[str, object], mode: Checked) -> None:
    """Raises ElementTypeError for a list of matrices, in a mode of tensors."""
    for name, item in given.items():
        if isinstance(item, (list, tuple)):
            raise ElementTypeError(
                f"{name} in mode {mode.mode.name}",
                expected="a tensor of NumPy, torch or CuPy, or one with __dlpack__",
                got=type(item).__name__,
                hint="lists of matrices are for gemm_mode=kronop.gemm.Mode.Array",
            )


def check_batch(lead: tuple[int, ...], mode: Checked) -> None:
    """Raises ArgumentError if the leading dimensions of A and B are not those of the mode."""
    if mode.slices > 1 and math.prod(lead) > 1:
        raise ArgumentError(
            "split_k_slices",
            expected="1, because A or B has leading dimensions",
            got=mode.slices,
            hint="a batch has blocks enough",
        )
    if mode.batch != 1 and math.prod(lead) != mode.batch:
        raise ArgumentError(
            "batch",
            expected=f"{math.prod(lead)}, as many products as A and B hold",
            got=mode.batch,
            hint="leave it out, or pass tensors (batch, M, K) and (batch, K, N), or flat ones"
            " with a problem_size",
        )
