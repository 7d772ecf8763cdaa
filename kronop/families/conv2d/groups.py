"""Several small groups as one: a product with a block-diagonal matrix of filters.

A product with few columns leaves most of a tile empty. That of several groups side by side takes no
longer, though most of its filters are zeros, and reads longer runs of channels.
"""

from __future__ import annotations

import dataclasses

from kronop.descriptions.gathered import Digits, Gathered
from kronop.descriptions.strided import Strided
from kronop.families.conv2d.description import Conv2dProblem
from kronop.families.conv2d.size import Conv2dSize
from kronop.families.conv2d.vocabulary import Operator
from kronop.families.gemm.description import GemmProblem
from kronop.families.gemm.size import GemmSize


def together(kind: Operator, size: Conv2dSize, columns: int) -> int:
    """How many groups fill the columns of a tile; results of wgrad would be others."""
    if kind is Operator.wgrad or size.flipped:
        return 1
    each = max(1, kind.extents(size)[1])
    return max(it for it in range(1, max(1, columns // each) + 1) if size.groups % it == 0)


def joined_size(size: GemmSize, count: int) -> GemmSize:
    """The size of products of `count` groups each."""
    return dataclasses.replace(size, n=size.n * count, k=size.k * count, batch=size.batch // count)


def joined(problem: Conv2dProblem, count: int) -> GemmProblem:
    """The products of `count` groups each; those of one if these don't lie side by side."""
    p, filters = problem.product, problem.b.strides
    one, rows_contiguous = p.n, filters[1] == problem.size.s * filters[2]
    results = [item for item in (p.y, p.z, p.bias) if item is not None]
    beside = all((it.batch[0] if it.batch else 0) == one * it.column for it in results)
    if count == 1 or problem.visited or not rows_contiguous or not beside:
        return p
    assert isinstance(p.a, Gathered)
    assert isinstance(p.b, Gathered)
    y, z, bias = (item and wider(item, count) for item in (p.y, p.z, p.bias))
    assert y is not None
    return dataclasses.replace(
        p,
        n=count * one,
        k=count * p.k,
        batch=(p.batch[0] // count,),
        a=_longer(p.a, count),
        b=_diagonal(p.b, count),
        y=y,
        z=z,
        bias=bias,
    )


def wider(item: Strided, count: int) -> Strided:
    """An operand like the result, for each `count` of its groups."""
    return dataclasses.replace(item, batch=tuple(count * step for step in item.batch))


def _longer(patches: Gathered, count: int) -> Gathered:
    """Patches of the channels of `count` groups, which are neighbours."""
    *taps, channels = patches.columns.extents
    columns = dataclasses.replace(patches.columns, extents=(taps[0], taps[1], count * channels))
    return dataclasses.replace(patches, columns=columns, batch=(count * patches.batch[0],))


def _diagonal(filters: Gathered, count: int) -> Gathered:
    """The filters of `count` groups: those with other groups' channels do not exist. The coordinate
    u of an element is the group of its row minus that of its column."""
    rows, columns = filters.rows, filters.columns
    return Gathered(
        pointer=filters.pointer,
        rows=Digits(
            extents=(rows.extents[0] * rows.extents[1], count, rows.extents[2]),
            steps=(rows.steps[1], 0, rows.steps[2]),
            u=(0, 1, 0),
        ),
        columns=Digits(
            extents=(1, count, columns.extents[2]),
            steps=(0, filters.batch[0], columns.steps[2]),
            u=(0, -1, 0),
        ),
        batch=(count * filters.batch[0],),
    )
