"""What designs of both targets share: the parameter struct, the form's constants and functor."""

from __future__ import annotations

import functools
from typing import Any

from kronop.artifacts import Field, KernelSignature, Scalar
from kronop.descriptions.datatype import DataType, float32
from kronop.descriptions.strided import MOST_BATCH_DIMENSIONS, padded
from kronop.emit.design import Constant, Functor, members, strided_values
from kronop.families.distance.description import DistanceProblem, Value
from kronop.families.distance.form import Form, TermKind, sum_of, value_of
from kronop.families.distance.gradient_description import GradientProblem

# Leading dimensions that kernels walk.
_OPERANDS = ("x1", "x2", "y", "z")
_OF_GRADIENTS = ("a", "b", "c", "d", "y", "z", "largest")
_LENGTHS = (TermKind.NormA, TermKind.NormB)


def parameters_of(form: Form, scalars: Field) -> str:
    """The C++ name of the parameter struct."""
    counts = f"{room(form.values)}, {room(form.vectors)}, {scalars.count}"
    return f"kronop::DistanceParameters<{counts}, {scalars.scalar.cxx}>"


def signature(form: Form, scalars: Field) -> KernelSignature:
    values, vectors = room(form.values), room(form.vectors)
    integer = Scalar.INT64
    return KernelSignature(
        "DistanceParameters",
        (
            *(Field(name, Scalar.POINTER) for name in _OPERANDS),
            Field("value", Scalar.POINTER, values),
            Field("vector", Scalar.POINTER, vectors),
            *(Field(name, integer) for name in ("m", "n", "k")),
            Field("batch", integer, MOST_BATCH_DIMENSIONS),
            *(Field(f"{name}_batch", integer, MOST_BATCH_DIMENSIONS) for name in _OPERANDS),
            *(Field(f"{name}_{way}", integer) for name in _OPERANDS for way in ("row", "column")),
            Field("value_batch", integer, MOST_BATCH_DIMENSIONS * values),
            Field("vector_batch", integer, MOST_BATCH_DIMENSIONS * vectors),
            Field("vector_column", integer, vectors),
            Field("diagonal", integer),
            Field("threads", integer),
            Field("number", Scalar.FLOAT64, values),
            scalars,
        ),
    )


def room(count: int) -> int:
    """C++ has no arrays of no elements."""
    return max(1, count)


def kernel_fields(form: Form) -> tuple[Field, ...]:
    """The members of a product's parameter struct that hold the kernel's values."""
    values, vectors = room(form.values), room(form.vectors)
    return (
        Field("value", Scalar.POINTER, values),
        Field("vector", Scalar.POINTER, vectors),
        Field("value_batch", Scalar.INT64, MOST_BATCH_DIMENSIONS * values),
        Field("vector_batch", Scalar.INT64, MOST_BATCH_DIMENSIONS * vectors),
        Field("vector_column", Scalar.INT64, vectors),
        Field("number", Scalar.FLOAT64, values),
    )


def kernel_values(values: tuple[Value, ...], vectors: tuple[Value, ...]) -> dict[str, Any]:
    """The members of all parameter structs that hold the kernel's values."""
    return {
        "value": tuple(item.memory.pointer for item in values),
        "vector": tuple(item.memory.pointer for item in vectors),
        "value_batch": tuple(step for item in values for step in padded(item.memory.batch)),
        "vector_batch": tuple(step for item in vectors for step in padded(item.memory.batch)),
        "vector_column": tuple(item.memory.column for item in vectors),
        "number": tuple(item.number for item in values),
    }


def values_of(problem: DistanceProblem, threads: int) -> dict[str, Any]:
    """The members of the parameter struct."""
    return {
        **strided_values(problem, _OPERANDS),
        **kernel_values(problem.values, problem.vectors),
        **members(problem, "m n k diagonal scalars"),
        "batch": padded(problem.batch, 1),
        "threads": threads,
    }


def gradient_parameters_of(scalars: Field) -> str:
    """The C++ name of the parameter struct of gradients."""
    return f"kronop::powers_of_distances::Parameters<{scalars.count}, {scalars.scalar.cxx}>"


def gradient_signature(scalars: Field) -> KernelSignature:
    integer = Scalar.INT64
    return KernelSignature(
        "powers_of_distances::Parameters",
        (
            *(Field(name, Scalar.POINTER) for name in (*_OF_GRADIENTS, "power")),
            *(Field(name, integer) for name in ("m", "n", "k", "o")),
            Field("batch", integer, MOST_BATCH_DIMENSIONS),
            *(
                Field(f"{name}_batch", integer, MOST_BATCH_DIMENSIONS)
                for name in (*_OF_GRADIENTS, "power")
            ),
            *(
                Field(f"{name}_{way}", integer)
                for name in _OF_GRADIENTS
                for way in ("row", "column")
            ),
            *(Field(name, integer) for name in ("y_output", "z_output", "threads")),
            Field("number", Scalar.FLOAT64),
            scalars,
        ),
    )


def gradient_values_of(problem: GradientProblem, threads: int) -> dict[str, Any]:
    """The members of the parameter struct."""
    power = problem.power
    return {
        **strided_values(problem, _OF_GRADIENTS),
        "power": power.memory.pointer,
        **members(problem, "m n k o"),
        "batch": padded(problem.batch, 1),
        "power_batch": padded(power.memory.batch),
        "y_output": problem.y.strides[0],
        "z_output": problem.z.strides[0] if problem.z else 0,
        "threads": threads,
        "number": power.number,
        "scalars": problem.scalars,
    }


def constants_of(form: Form) -> tuple[tuple[str, Constant], ...]:
    """What the trait struct holds of a form."""
    return (*terms_of(form), *counts_of(form), ("kRegularized", form.regularized))


def terms_of(form: Form) -> tuple[tuple[str, Constant], ...]:
    """The sums over features."""
    return (
        ("kTerm", tuple(int(term.kind) for term in form.terms)),
        ("kTermValue", tuple(term.value for term in form.terms)),
        ("kTermVector", tuple(term.vector for term in form.terms)),
    )


def counts_of(form: Form) -> tuple[tuple[str, Constant], ...]:
    """How many values and vectors there are."""
    return ("kValues", form.values), ("kVectors", form.vectors)


def widens(form: Form, sums: DataType) -> bool:
    """Whether the kernel is computed in double precision where lengths leave the range of sums: it
    has lengths, and nothing but products, in float32."""
    kinds = {term.kind for term in form.terms}
    return sums is float32 and bool(kinds & {*_LENGTHS}) and kinds <= {TermKind.Dot, *_LENGTHS}


def functors_of(form: Form, sums: DataType, compute: str = "Accumulator") -> tuple[Functor, ...]:
    """The kernel of the sums, whose type is `sums`, as straight-line C++ on numbers of the type
    `compute`; also on double precision where `widens`."""
    names = {"Kernel": compute} | ({"WideKernel": "double"} if widens(form, sums) else {})
    return tuple(
        Functor(
            name=name,
            parameters=f"const {number} (&s)[{len(form.terms)}], const {number}* h",
            result=number,
            expression=form.expression,
        )
        for name, number in names.items()
    )


@functools.lru_cache(maxsize=256)
def is_symmetric(form: Form) -> bool:
    """Whether the kernel stays the same where its points are exchanged. It does unless it treats
    their norms differently, which shows at some numbers."""
    kinds = [term.kind for term in form.terms]
    exchanged = {TermKind.NormA: TermKind.NormB, TermKind.NormB: TermKind.NormA}
    values = {value_of(index): 1.7 + index / 7 for index in range(form.values)}
    found = []
    for kinds_now in (kinds, [exchanged.get(kind, kind) for kind in kinds]):
        sums = {sum_of(index): 2.3 + kind / 11 for index, kind in enumerate(kinds_now)}
        found.append(form.expression.evaluate(sums | values))
    return bool(found[0] == found[1])
