"""Convolutions and their gradients, against torch's and their floors."""

from __future__ import annotations

import argparse
import itertools
import re

from kronop.bench import conv2d, run, torch_case
from kronop.bench.duration import Pace
from kronop.errors import ArgumentError
from kronop.families.conv2d.geometry import Geometry
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator

_DTYPES = {
    "cuda": ["float16", "bfloat16", "float32", "float64"],
    "cpu": ["float32"],
}
_BATCH = {"cuda": 64, "cpu": 4}
_LAYER = re.compile(
    r"(?:([1-9]\d*)x)?([1-9]\d*)x([1-9]\d*)x([1-9]\d*)/([1-9]\d*)x([1-9]\d*)x([1-9]\d*)(?:/([1-9]\d*)(?:/([1-9]\d*))?)?"
)

_PACES = {"cpu": Pace(2.5, 2e9), "cuda": Pace(1.5, 7e11)}
EXAMPLES = {
    "bench conv2d --shapes 28x28x64/64x3x3 --batch 1": "one layer on this CPU, in seconds",
    "bench conv2d --kind fprop --activation relu": "ResNet-50's layers, with bias and relu",
    "bench conv2d --device cuda --dtype float16 --json h200.jsonl": "on a GPU",
}


def configure(parser: argparse.ArgumentParser) -> None:
    torch_case.configure(
        parser,
        [*_DTYPES["cuda"], "int8"],
        "images / filters / stride / groups, as 56x56x64/128x3x3/2 for H x W x C, K x R x S, padded"
        " by half a filter; 8x56x56x64 are 8 images (default ResNet-50's layers)",
        "of fprop: none, bias, or an activation behind a bias (default none)",
    )
    add, kinds = parser.add_argument, [item.name for item in Operator]
    add("--batch", type=int, help="images (default 64 on a GPU, 4 on a CPU)")
    add("--kind", nargs="+", choices=kinds, default=kinds, help="what is computed (default all)")


def execute(options: argparse.Namespace) -> None:
    """Prints a line for each case as soon as it is measured and checked.

    Raises:
        ArgumentError: options are invalid.
        DeviceError: some cases failed; the table says why.
    """
    run.check(options, options.json)
    cases = _cases(options)
    peers = "bench conv2d, which compares with torch's convolutions"
    work = [case.operations for case in cases]
    run.beside_torch(options, cases, work, conv2d.measure, _PACES, conv2d.TABLE, peers)


def _cases(options: argparse.Namespace) -> list[conv2d.Result]:
    """Of all sizes, kinds, types and epilogues; gradients and integers have no activations."""
    batch = options.batch if options.batch is not None else _BATCH[options.device]
    sizes = [size_of(text, batch) for text in options.shapes or conv2d.distinct_layers()]
    kinds = [Operator[name] for name in dict.fromkeys(options.kind)]
    types = dict.fromkeys(options.dtype or _DTYPES[options.device])
    found = [
        conv2d.Result(size=size, kind=kind, dtype=dtype, epilogue=epilogue)
        for size, kind in itertools.product(sizes, kinds)
        for dtype in types
        for epilogue in dict.fromkeys(options.activation)
        if _has(kind, dtype, epilogue)
    ]
    if not found:
        raise ArgumentError(
            "--activation",
            expected="none for gradients and int8",
            got=" ".join(options.activation),
            hint="epilogues are those of fprop, in floating point",
        )
    return found


def _has(kind: Operator, dtype: str, epilogue: str) -> bool:
    if dtype == "int8":
        return kind is Operator.fprop and epilogue == "none"
    return kind is Operator.fprop or epilogue == "none"


def size_of(text: str, batch: int) -> Conv2dSize:
    """The size of a layer, for so many images if it has no N in front.

    Raises:
        ArgumentError: it is not written so, or does not fit.
    """
    found = _LAYER.fullmatch(text)
    if not found or batch < 1:
        raise ArgumentError(
            "--shapes and --batch",
            expected="H x W x C / K x R x S / stride / groups, of at least one image",
            got=f"{text} and {batch}",
            hint="for example 56x56x64/128x3x3/2",
        )
    own, *others = found.groups()
    h, w, c, k, r, s, stride, groups = (int(item or 1) for item in others)
    geometry = Geometry.of(stride, (r // 2, s // 2), 1, groups)
    return geometry.size((int(own or batch), c, h, w), (k, c // groups, r, s))
