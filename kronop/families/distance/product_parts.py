"""What designs of products of kernel matrices share on both targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kronop.artifacts import Field, Scalar
from kronop.emit.design import Functor
from kronop.families.distance.description import Value
from kronop.families.distance.form import Form
from kronop.families.distance.parts import BATCH_DIMS


def room(count: int) -> int:
    """C++ has no arrays of no elements."""
    return max(1, count)


def value_fields(form: Form) -> tuple[Field, ...]:
    """The members of a parameter struct that hold the kernel's values."""
    values, vectors = room(form.values), room(form.vectors)
    return (
        Field("value", Scalar.POINTER, values),
        Field("vector", Scalar.POINTER, vectors),
        Field("value_batch", Scalar.INT64, BATCH_DIMS * values),
        Field("vector_batch", Scalar.INT64, BATCH_DIMS * vectors),
        Field("vector_column", Scalar.INT64, vectors),
        Field("number", Scalar.FLOAT64, values),
    )


def values_of(values: tuple[Value, ...], vectors: tuple[Value, ...]) -> dict[str, Any]:
    """What these members are."""
    return {
        "value": tuple(item.pointer for item in values),
        "vector": tuple(item.pointer for item in vectors),
        "value_batch": tuple(_batches(values)),
        "vector_batch": tuple(_batches(vectors)),
        "vector_column": tuple(item.column for item in vectors),
        "number": tuple(item.number for item in values),
    }


def padded(extents: tuple[int, ...], more: int = 0) -> tuple[int, ...]:
    """Values of leading dimensions, with those in front that the batch has not."""
    return (more,) * (BATCH_DIMS - len(extents)) + extents


def _batches(values: tuple[Value, ...]) -> Iterator[int]:
    for item in values:
        yield from padded(item.batch)


def functor_of(form: Form, compute: str) -> Functor:
    """The kernel of the sums as straight-line C++ on numbers of the type `compute`."""
    return Functor(
        name="Kernel",
        parameters=f"const {compute} (&s)[{len(form.terms)}], const {compute}* h",
        result=compute,
        expression=form.expression,
    )
