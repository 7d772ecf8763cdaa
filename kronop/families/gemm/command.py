"""Matrix products on the command line: `show gemm 4096x4096x4096 --target sm_90a`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence

from kronop.core.calls import check_activation, epilogue_of
from kronop.core.command import Command, Common, Flag, MakeTensor, one_shape
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.datatype import Layout
from kronop.descriptions.tensor import TensorDescription
from kronop.errors import ArgumentError
from kronop.families.gemm.api import arguments_of
from kronop.families.gemm.arguments import GemmArguments
from kronop.families.gemm.operation import GemmOperationUniversal
from kronop.families.gemm.size import GemmSize
from kronop.tensors import Tensor

_SHAPE = re.compile(r"(?:[1-9]\d*x){2,3}[1-9]\d*")
_LAYOUTS = {"row": Layout.RowMajor, "column": Layout.ColumnMajor}


class _Command(Command):
    shapes = "M x N x K as 1024x2048x64, a batch of 8 as 8x1024x2048x64"
    products = "matrix products"
    examples: Mapping[str, str] = {
        "1024x2048x64": "(1024, 64) times (64, 2048)",
        "8x256x256x64 --activation gelu": "a batch of 8, and gelu of the results",
    }
    flags: Mapping[str, Flag] = {
        "--activation": Flag(f"one of {', '.join(ACTIVATION_NAMES)}", "NAME"),
        "--a-layout": Flag("of A: row (default) or column", "LAYOUT"),
        "--b-layout": Flag("of B: row (default) or column", "LAYOUT"),
    }

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> GemmOperationUniversal:
        target, tile, operand, _, result, epilogue = common
        a, b = (
            TensorDescription(operand.element, layout, operand.alignment)
            for layout in _layouts(options)
        )
        check_activation(options.activation)
        if options.activation is not None:
            epilogue = epilogue_of(operand.element, result, options.activation)
        return GemmOperationUniversal(target, tile, a, b, result, epilogue)

    def size(self, options: argparse.Namespace, shapes: Sequence[str]) -> GemmSize:
        return size_of(one_shape("gemm", shapes, "M x N x K", "x", _SHAPE))

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> GemmArguments:
        size = size_of(shape)
        m = size.m if rows is None else rows
        a, b = (
            _matrix(tensor, size.batch, extents, layout)
            for extents, layout in zip(
                ((m, size.k), (size.k, size.n)), _layouts(options), strict=True
            )
        )
        return arguments_of(a, b, activation=options.activation)


COMMAND = _Command()


def size_of(text: str) -> GemmSize:
    """The size that is written as M x N x K, or with a batch in front: `8x1024x2048x64`.

    Raises:
        ArgumentError: it is not written so.
    """
    if not _SHAPE.fullmatch(text):
        raise ArgumentError(
            "shape",
            expected="M x N x K, as 1024x2048x64",
            got=repr(text),
            hint="A is M x K and B is K x N; the number of products may stand in front",
        )
    *batch, m, n, k = map(int, text.split("x"))
    return GemmSize(m, n, k, *batch)


def _layouts(options: argparse.Namespace) -> list[Layout]:
    """Those of A and B."""
    found = []
    for name in ("a", "b"):
        text = getattr(options, f"{name}_layout")
        if text is not None and text not in _LAYOUTS:
            raise ArgumentError(
                f"--{name}-layout", expected="row or column", got=text, hint="row is usual"
            )
        found.append(_LAYOUTS[text or "row"])
    return found


def _matrix(tensor: MakeTensor, batch: int, extents: tuple[int, int], layout: Layout) -> Tensor:
    lead = (batch,) if batch != 1 else ()
    if layout is Layout.RowMajor:
        return tensor((*lead, *extents))
    return tensor((*lead, *extents[::-1])).swapaxes(-1, -2)
