"""Distances and kernel matrices on the command line."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kronop.core.command import Command, Common, Flag, MakeTensor, one_shape
from kronop.errors import ArgumentError
from kronop.families.distance import kernels
from kronop.families.distance.api import DIRECT, MODES, distance_arguments, is_expanded
from kronop.families.distance.arguments import DistanceArguments
from kronop.families.distance.form import Form, TermKind
from kronop.families.distance.kernels import Kernel
from kronop.families.distance.operation import DistanceOperation
from kronop.families.distance.size import DistanceSize

# Kernels by name: the number that may follow the name, if none does, or None if the kernel takes
# none; and how the kernel is made of it. Bandwidths and the like are 1, because kernels of all
# values are the same operation.
_KERNELS: Mapping[str, tuple[float | None, Callable[[Any], Kernel]]] = {
    "gaussian": (None, lambda _: kernels.Gaussian(1.0)),
    "laplace": (1, lambda norm: kernels.Laplace(1.0, norm)),
    "matern": (1.5, lambda nu: kernels.Matern(nu, 1.0)),
    "rational-quadratic": (None, lambda _: kernels.RationalQuadratic(1.0, 1.0)),
    "linear": (None, lambda _: kernels.Linear()),
    "polynomial": (2, lambda degree: kernels.Polynomial(degree, 1.0)),
    "cosine": (None, lambda _: kernels.Cosine()),
}
_SHAPE = re.compile(r"[1-9]\d*x[1-9]\d*x[1-9]\d*")
_NAMED = re.compile(r"([a-z-]+)(?::(\d+)(\.\d+)?)?")


def kernel_names() -> list[str]:
    """The names of kernels, with the number that they have if none is given."""
    return [
        name if usual is None else f"{name}[:{usual:g}]" for name, (usual, _) in _KERNELS.items()
    ]


class _Command(Command):
    shapes = "M x N x K as 1024x2048x64"
    products = "distances and kernel matrices"
    examples: Mapping[str, str] = {
        "1024x2048x64 --p 1.3": "1024 points against 2048, of 64 features, in a norm",
        "512x512x16 --kernel gaussian --symmetric": "a kernel matrix of 512 points",
    }
    flags: Mapping[str, Flag] = {
        "--p": Flag("the norm: 2 by default, any number from 0 on, or inf", takes="P"),
        "--kernel": Flag(
            f"instead of a norm, [defaults]: {', '.join(kernel_names())}; + adds, * multiplies",
            "NAME",
        ),
        "--symmetric": Flag("X2 is X1"),
        "--expanded": Flag("squared distances by matrix products, however few the points"),
        "--direct": Flag("squared distances as sums of squared differences"),
    }

    def operation(
        self, options: argparse.Namespace, shapes: Sequence[str], common: Common
    ) -> DistanceOperation:
        size = self.size(options, shapes)
        target, tile, points, _, result, epilogue = common
        form = _kernel(options).bound().form
        expanded = is_expanded(_mode(options, form), max(size.m, size.n))
        return DistanceOperation(
            *(target, tile, points, points, result, epilogue, form, options.symmetric, expanded)
        )

    def size(self, options: argparse.Namespace, shapes: Sequence[str]) -> DistanceSize:
        return _size(options, one_shape("distance", shapes, "M x N x K", "x", _SHAPE))

    def of_rows(self, options: argparse.Namespace, size: Any, rows: int) -> Any:
        found = super().of_rows(options, size, rows)
        return dataclasses.replace(found, n=rows) if options.symmetric else found

    def fixed(self, options: argparse.Namespace) -> Mapping[str, object]:
        return {"kernel": _kernel(options).bound()}

    def arguments(
        self, options: argparse.Namespace, shape: str, rows: int | None, tensor: MakeTensor
    ) -> DistanceArguments:
        size = _size(options, shape)
        m = size.m if rows is None else rows
        x1 = tensor((m, size.k))
        x2 = x1 if options.symmetric else tensor((size.n, size.k))
        bound = _kernel(options).bound()
        return distance_arguments(x1, x2, bound, _mode(options, bound.form))


COMMAND = _Command()


def size_of(text: str) -> DistanceSize:
    """The size that is written as M x N x K: `1024x2048x64`.

    Raises:
        ArgumentError: it is not written so.
    """
    if not _SHAPE.fullmatch(text):
        raise ArgumentError(
            "shape",
            expected="M x N x K, as 1024x2048x64",
            got=repr(text),
            hint="M points against N points of K features",
        )
    return DistanceSize(*map(int, text.split("x")))


def kernel_of(text: str) -> Kernel:
    """The kernel of a name such as `matern:1.5`, or of a sum of products: `gaussian+linear*cosine`.

    Raises:
        ArgumentError: there is none of that name, or not with that number.
    """
    products = [[_named(name) for name in term.split("*")] for term in text.split("+")]
    return functools.reduce(
        operator.add, (functools.reduce(operator.mul, product) for product in products)
    )


def norm_of(text: str) -> float:
    """The p of a norm as it is written: a number of at least 0, or `inf`.

    Raises:
        ArgumentError: it is none.
    """
    if not re.fullmatch(r"\d+(\.\d+)?|\.\d+|inf", text):
        raise ArgumentError(
            "p", expected="a number of at least 0, or inf", got=repr(text), hint="take 2"
        )
    return float(text)


def _named(text: str) -> Kernel:
    found = _NAMED.fullmatch(text)
    name, whole, rest = found.groups() if found else ("", None, None)
    usual, make = _KERNELS.get(name, (None, None))
    if make is None or (whole is not None and usual is None):
        raise ArgumentError(
            "kernel",
            expected=" or ".join(kernel_names()),
            got=repr(text),
            hint="+ adds kernels, * multiplies them",
        )
    if whole is None:
        return make(usual)
    return make(float(whole + rest) if rest else int(whole))


def _size(options: argparse.Namespace, text: str) -> DistanceSize:
    size = size_of(text)
    if options.symmetric and size.m != size.n:
        raise ArgumentError(
            "shape",
            expected="as many points on both sides, for --symmetric",
            got=text,
            hint=f"write {size.m}x{size.m}x{size.k}",
        )
    return size


def _kernel(options: argparse.Namespace) -> Kernel:
    if options.kernel is None:
        return kernels.PowerNorm(norm_of("2" if options.p is None else options.p))
    if options.p is not None:
        raise ArgumentError(
            "--kernel", expected="no --p", got=options.p, hint="leave one of them out"
        )
    return kernel_of(options.kernel)


def _mode(options: argparse.Namespace, form: Form) -> str:
    """Where matrix products may be used, in torch's words: as the one-line functions do."""
    if options.expanded and options.direct:
        raise ArgumentError("--direct", expected="no --expanded", got="both", hint="leave one out")
    if options.expanded and TermKind.Two not in {term.kind for term in form.terms}:
        raise ArgumentError(
            "--expanded",
            expected="a norm or kernel of squared distances",
            got=f"--p {options.p}" if options.kernel is None else f"--kernel {options.kernel}",
            hint="leave it out: only squares are matrix products",
        )
    if options.expanded:
        return MODES[1]
    return DIRECT if options.direct or options.kernel is not None else MODES[0]
