"""Images and filters of few channels, widened for copies of pixels: conv2d_widen.cuh."""

from __future__ import annotations

from collections.abc import Iterator

from kronop.artifacts import Field, KernelSignature, Launch, Scalar
from kronop.descriptions.datatype import DataType
from kronop.descriptions.strided import Strided
from kronop.emit.cuda import operands
from kronop.emit.design import Instantiation, InWorkspace, members, package_folder
from kronop.frozen import dataclass
from kronop.target import Target

_THREADS, _RESIDENT = 256, 4
_LINES, _MOST_ACROSS = 16, 64
_PIECE_BYTES, _BEHIND = 16, 24
_MEMBERS = "images lines columns height width channels first_h first_w stride_w apart pitch"
_NUMBERS = (
    *_MEMBERS.split(),
    *("met", "across", "pixels", "tiles"),
    *("image", "line", "pixel", "channel", "plane"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WidenProblem:
    """Images, and where filters meet them along W.

    Attributes:
        item: the images, channels last: four strides.
        images, height, width, channels: their extents.
        lines, columns: of what is written of each image.
        first_h, first_w: where line 0, and the first tap of column 0, are in an image.
        stride_w: pixels from a column to the next.
        taps, apart: how many a column meets, and their distance.
        pitch: elements of a line of a column, in whole pieces of 16 bytes.
        address: of what is written.
    """

    item: Strided
    images: int
    height: int
    width: int
    channels: int
    lines: int
    columns: int
    first_h: int
    first_w: int
    stride_w: int
    taps: int
    apart: int
    pitch: int
    address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dWiden(InWorkspace):
    """A kernel that widens images, or filters.

    Attributes:
        element: its type.
        split: float32 becomes two planes, of values rounded to TF32 and of the remainders.
    """

    threads = _THREADS
    shared_bytes = 16384
    signature = KernelSignature(
        "Conv2dWidenParameters",
        (
            *(Field(name, Scalar.POINTER) for name in ("from", "to")),
            *(Field(name, Scalar.INT64) for name in _NUMBERS),
        ),
    )

    element: DataType
    split: bool

    def __str__(self) -> str:
        return "what filters meet of lines"

    def instantiation(self, target: Target) -> Instantiation:
        return Instantiation(
            header="conv2d_widen.cuh",
            parameters="kronop::Conv2dWidenParameters",
            types=(("Element", self.element.cxx),),
            constants=(
                ("kThreads", _THREADS),
                ("kBlocks", _RESIDENT),
                ("kLines", _LINES),
                ("kMasksAt", self.shared_bytes - 3 * _PIECE_BYTES),
                ("kSplit", self.split),
            ),
            folders=(package_folder(__package__),),
        )

    def pitch(self, met: int) -> int:
        """The fewest elements of a line of a column that meets so many."""
        return operands.round_up(met, _PIECE_BYTES // self.element.bytes)

    def reasons(self, channels: int, taps: int, apart: int) -> Iterator[str]:
        """Why it does not widen such images, if there are reasons."""
        if not self._most_columns(channels, taps, apart, 1):
            yield f"{taps} taps of {channels} channels; a block has no room for {_LINES} lines"

    def _most_columns(self, channels: int, taps: int, apart: int, stride: int) -> int:
        """The most columns of a tile; 0 if there is no room for one. Behind a line is room for what
        makes the distance of lines odd, and for the words that its last piece touches."""
        pixels = (self.shared_bytes // _LINES - _BEHIND) // (channels * self.element.bytes)
        room = pixels - ((taps - 1) * apart + 1)
        return min(_MOST_ACROSS, room // stride + 1) if room >= 0 else 0

    def launches(self, problem: WidenProblem, target: Target) -> tuple[Launch, ...]:
        p, met = problem, problem.taps * problem.channels
        most = self._most_columns(p.channels, p.taps, p.apart, p.stride_w)
        tiles = operands.cover(p.columns, most)
        # All tiles of a line have about as many columns.
        across = operands.cover(p.columns, max(1, tiles))
        image, line, pixel, channel = p.item.strides
        values = {
            "from": p.item.pointer,
            "to": p.address,
            **members(p, _MEMBERS),
            "met": met,
            "across": across,
            "tiles": tiles,
            "pixels": (across - 1) * p.stride_w + (p.taps - 1) * p.apart + 1,
            "image": image,
            "line": line,
            "pixel": pixel,
            "channel": channel,
            "plane": p.images * p.columns * p.lines * p.pitch,
        }
        blocks = p.images * operands.cover(p.lines, _LINES) * tiles
        launch = operands.make_launch(self, min(blocks, _RESIDENT * target.cores), values)
        return (launch,) if blocks else ()
