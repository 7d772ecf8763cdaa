"""Filters of small groups, spread over the channels of several groups: conv2d_spread.cuh."""

from __future__ import annotations

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, InWorkspace, package_folder
from kronop.families.conv2d.size import Conv2dSize
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS, _RESIDENT = 256, 5
_PIECE_BYTES = 16
_NUMBERS = (
    *("filters", "height", "width", "channels", "each", "together"),
    *("filter", "row", "pixel", "channel"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadProblem:
    """Filters, and how many groups lie side by side.

    Attributes:
        item: the filters, channels last: four strides.
        size: of the convolution whose filters they are.
        together: so many groups become one.
        address: of what is written.
    """

    item: Strided
    size: Conv2dSize
    together: int
    address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dSpread(InWorkspace):
    """A kernel that spreads filters.

    Attributes:
        element: their type.
    """

    threads = _THREADS
    shared_bytes = 0
    signature = KernelSignature(
        "Conv2dSpreadParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("from", "to")),
            *(Field(name, Scalar.INT64) for name in _NUMBERS),
        ),
    )

    element: DataType

    def __str__(self) -> str:
        return "filters among zeros"

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="conv2d_spread.cuh",
            parameters="kronop::Conv2dSpreadParameters",
            types=(("Element", self.element.cxx),),
            constants=(("kThreads", _THREADS), ("kBlocks", _RESIDENT)),
            folders=(package_folder(__package__),),
        )

    def launches(self, problem: SpreadProblem, target: Target) -> tuple[Launch, ...]:
        size, together = problem.size, problem.together
        filter_, row, pixel, channel = problem.item.strides
        values = {
            "from": problem.item.pointer,
            "to": problem.address,
            "filters": size.k,
            "height": size.r,
            "width": size.s,
            "channels": size.channels,
            "each": size.filters,
            "together": together,
            "filter": filter_,
            "row": row,
            "pixel": pixel,
            "channel": channel,
        }
        count = size.k * size.r * size.s * size.channels * together
        threads = count * self.element.bytes // _PIECE_BYTES
        blocks = min(operands.cover(threads, _THREADS), _RESIDENT * target.cores)
        return (operands.make_launch(self, blocks, values),) if blocks else ()
