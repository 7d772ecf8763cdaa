"""Convolutions against torch's, measured: times, errors against float64, shares of the floor."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kronop.bench import report
from kronop.bench.arrays import Arrays
from kronop.bench.gemm import UnitFloor, activation_of, check_error, floor_of
from kronop.bench.protocol import Call, keeping, sets_for
from kronop.bench.table import Table, error_text, milliseconds
from kronop.bench.timing import (
    Measured,
    PeerUnavailableError,
    Setting,
    Timing,
    attempted,
    first_line,
    time_together,
)
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.datatype import TENSOR_TYPES, DataType, result_type
from kronop.families.conv2d.api import arguments_of, conv2d, conv2d_input, conv2d_weight
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator
from kronop.tensors import Tensor

# torch in eager mode; cuDNN's one kernel with bias and relu; torch.compile of all that is computed.
PEERS = ("torch", "fused", "compiled")
_CHECKED_IMAGES = 2
_CHECKED_FILTERS = 8
TABLE = Table(
    (
        *(("images / filters", 34), ("kind", 6), ("type", 9), ("epilogue", 10), ("ms", 10)),
        *(("graph us", 9), ("Tflop/s", 9), ("floor", 6), ("floor ms", 9), ("error", 8)),
    )
).beside(PEERS, "{} ms (gain) in a graph", 26)
_Way = Callable[["_Operands"], Any]


@dataclass(slots=True, kw_only=True)
class Result(Measured[UnitFloor]):
    """The measurements of one case."""

    size: Conv2dSize
    kind: Operator
    epilogue: str

    @property
    def text(self) -> str:
        s = self.size
        groups = f" /{s.groups}" if s.groups > 1 else ""
        steps = f" by {s.stride_h}" if s.stride_h > 1 else ""
        return f"{s.n}x{s.h}x{s.w}x{s.c}/{s.k}x{s.r}x{s.s}{steps}{groups}"

    @property
    def label(self) -> str:
        return f"{self.text} {self.kind.name} {self.dtype} {self.epilogue}"

    @property
    def element(self) -> DataType:
        return TENSOR_TYPES[self.dtype]

    @property
    def moved(self) -> int:
        """Bytes that are read and written at least."""
        shapes, output = shapes_of(self.size), result_type(self.element)
        types = (self.element, self.element, output)
        return sum(
            math.prod(shapes[name]) * item.bytes
            for name, item in zip(self.kind.tensors, types, strict=True)
        )

    @property
    def operations(self) -> int:
        return 2 * self.size.products

    @property
    def rate(self) -> float | None:
        """Operations in a second, in 10^12."""
        ms = _least(self.kronop)
        return self.operations / ms / 1e9 if ms else None

    @property
    def share(self) -> float | None:
        ms = _least(self.kronop)
        return self.floor.ms / ms if self.floor and ms else None

    @property
    def names(self) -> list[str]:
        return [self.text, self.kind.name, self.dtype, self.epilogue]

    @property
    def figures(self) -> list[str]:
        assert self.floor is not None
        shares = f"{self.rate:.4g}", f"{self.share:.2f}"
        return [*self.times, *shares, milliseconds(self.floor.ms), error_text(self.kronop.error)]

    def beside(self, peer: Timing) -> str:
        """A peer's time and its ratio to kronop's: in graphs, if both were captured."""
        text = Measured.beside(self, peer)
        if peer.graph_ms is None or self.kronop.graph_ms is None:
            return text
        return f"{text} {peer.graph_ms / self.kronop.graph_ms:.2f}x"

    def as_json(self) -> dict[str, object]:
        """Everything that was measured; times are in milliseconds, `share` is floor over time."""
        size, floor = self.size, self.floor
        return {
            "images": shapes_of(size)["images"],
            "filters": shapes_of(size)["filters"],
            "stride": (size.stride_h, size.stride_w),
            "padding": (size.pad_h, size.pad_w),
            "groups": size.groups,
            "kind": self.kind.name,
            "dtype": self.dtype,
            "epilogue": self.epilogue,
            "operations": self.operations,
            "bytes": self.moved,
            "kronop": report.timing_json(self.kronop),
            "share": self.share,
            "floor": floor and {"ms": floor.ms, "bound": floor.bound},
            "peers": report.peers_json(self),
        }


def _least(timing: Timing) -> float | None:
    """Milliseconds of a call, in a CUDA graph where there is one."""
    return timing.graph_ms if timing.graph_ms is not None else timing.ms


@dataclass(frozen=True, slots=True)
class _Operands:
    """Images, filters, the gradient of results and a bias, in torch's shapes, channels last; the
    result takes the place of one of them."""

    x: Tensor
    w: Tensor
    grad: Tensor
    bias: Tensor


def run(
    size: Conv2dSize,
    kind: Operator,
    dtype: str,
    epilogue: str,
    setting: Setting,
    tell: Callable[[str], None],
) -> Result:
    """Measures one case; if something fails, the result has the reason."""
    tell("compiling and timing")
    result = Result(size=size, kind=kind, dtype=dtype, epilogue=epilogue)
    return attempted(result, setting, lambda: _measure(result, setting))


def _measure(result: Result, setting: Setting) -> None:
    arrays = setting.arrays
    sets = [_operands(result, arrays) for _ in range(sets_for(result.moved))]
    variants: dict[str, list[Call]] = {}
    result.peers = {name: Timing() for name in PEERS}
    expected = _part(result, sets[0])
    for name, timing in (("kronop", result.kronop), *result.peers.items()):
        try:
            way = _own(result) if name == "kronop" else _peer(name, result, arrays.device)
            if way is None:
                continue
            timing.error = _error(_checked(result, way(sets[0])), expected)
        except (PeerUnavailableError, RuntimeError) as error:
            if name == "kronop":
                raise
            timing.reason = first_line(error)
            continue
        variants[name] = keeping([functools.partial(way, item) for item in sets])
    depth = result.kind.extents(result.size)[2]
    check_error(result.kronop.error, result.element, depth, "conv2d")
    arguments = _arguments(result, sets[0])
    time_together(variants, result, setting, moved=result.moved, graph=True)
    result.floor = floor_of(arguments)


def _operands(result: Result, arrays: Arrays) -> _Operands:
    shapes, dtype, kind = shapes_of(result.size), result.dtype, result.kind

    def drawn(name: str) -> Tensor:
        if name == kind.tensors[2]:  # What is computed.
            return None
        return arrays.random(shapes[name], dtype).permute(0, 3, 1, 2)

    bias = None
    if result.epilogue != "none":
        bias = arrays.random((result.size.k,), result_type(result.element).name)
    return _Operands(drawn("images"), drawn("filters"), drawn("results"), bias)


def _geometry(size: Conv2dSize) -> dict[str, Any]:
    return {
        "stride": (size.stride_h, size.stride_w),
        "padding": (size.pad_h, size.pad_w),
        "groups": size.groups,
    }


def _own(result: Result) -> _Way:
    size, how = result.size, _geometry(result.size)
    if result.kind is Operator.dgrad:
        images = (size.n, size.c, size.h, size.w)
        return lambda item: conv2d_input(images, item.w, item.grad, **how)
    if result.kind is Operator.wgrad:
        filters = (size.k, size.channels, size.r, size.s)
        return lambda item: conv2d_weight(item.x, filters, item.grad, **how)
    # A name of an activation, or none.
    name: Any = result.epilogue if result.epilogue in ACTIVATION_NAMES else None
    return lambda item: conv2d(item.x, item.w, item.bias, activation=name, **how)


def _arguments(result: Result, item: _Operands) -> Any:
    by_name = {"images": item.x, "filters": item.w, "results": item.grad}
    a, b = (by_name[name].permute(0, 2, 3, 1) for name in result.kind.tensors[:2])
    activation = result.epilogue if result.epilogue in ACTIVATION_NAMES else None
    return arguments_of(result.kind, a, b, result.size, item.bias, activation)


def _peer(name: str, result: Result, device: str) -> _Way | None:
    """A convolution by torch; None where this peer has no such.

    Raises:
        PeerUnavailableError: torch has no function for it.
    """
    import torch

    if result.element.kind != "float":
        raise PeerUnavailableError("no convolutions of integers")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    way = _by_torch(result.kind, result.size, result.epilogue)
    if name == "torch":
        return way
    if device != "cuda" or result.epilogue == "none":
        return None
    if name == "compiled":
        return _compiled(result)
    if result.epilogue != "relu":
        return None
    stride, padding, groups = _geometry(result.size).values()
    return lambda item: torch.cudnn_convolution_relu(
        item.x, item.w, item.bias, stride, padding, (1, 1), groups
    )


def _by_torch(kind: Operator, size: Conv2dSize, epilogue: str) -> _Way:
    import torch

    how = _geometry(size)
    if kind is Operator.fprop:
        finish = activation_of(epilogue) if epilogue in ACTIVATION_NAMES else None
        convolve = functools.partial(torch.nn.functional.conv2d, **how)
        if finish is None:
            return lambda item: convolve(item.x, item.w, item.bias)
        return lambda item: finish(convolve(item.x, item.w, item.bias))
    is_dgrad = kind is Operator.dgrad
    which = 0 if is_dgrad else 1
    last = torch.channels_last
    shape = shapes_of(size)[kind.tensors[2]]
    shape = (shape[0], shape[3], *shape[1:3])

    def backward(item: _Operands) -> Tensor:
        # Of what is computed the shape, type and layout are read.
        like = torch.empty(shape, dtype=item.grad.dtype, device=item.grad.device)
        like = like.to(memory_format=last)
        x, w = (like, item.w) if is_dgrad else (item.x, like)
        mask = [is_dgrad, not is_dgrad, False]
        return torch.ops.aten.convolution_backward(
            *(item.grad, x, w, None, how["stride"], how["padding"], (1, 1), False, (0, 0)),
            *(how["groups"], mask),
        )[which]

    return backward


def _compiled(result: Result) -> _Way:
    import torch

    finish = activation_of(result.epilogue) if result.epilogue in ACTIVATION_NAMES else None
    how = _geometry(result.size)

    @torch.compile(dynamic=False)  # type: ignore[untyped-decorator]
    def both(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        found = torch.nn.functional.conv2d(x, w, bias, **how)
        return found if finish is None else finish(found)

    return lambda item: both(item.x, item.w, item.bias)


def _checked(result: Result, found: Tensor) -> Tensor:
    """The part of a result that is compared with float64: of the first group some images, or some
    filters."""
    size = result.size
    if result.kind is Operator.wgrad:
        return found[: min(size.filters, _CHECKED_FILTERS)].double()
    channels = size.channels if result.kind is Operator.dgrad else size.filters
    return found[:_CHECKED_IMAGES, :channels].double()


def _part(result: Result, item: _Operands) -> Tensor:
    """The same part of a result, by torch in float64."""
    size, kind = result.size, result.kind
    is_wgrad = kind is Operator.wgrad
    images = slice(None if is_wgrad else _CHECKED_IMAGES)
    filters = min(size.filters, _CHECKED_FILTERS) if is_wgrad else size.filters

    def wide(tensor: Tensor, *part: slice) -> Tensor:
        return None if tensor is None else tensor[part].double()

    few = _Operands(
        wide(item.x, images, slice(size.channels)),
        wide(item.w, slice(filters)),
        wide(item.grad, images, slice(filters)),
        wide(item.bias, slice(filters)),
    )
    n = size.n if is_wgrad else min(size.n, _CHECKED_IMAGES)
    small = replace(size, n=n, c=size.channels, k=filters, groups=1)
    return _by_torch(kind, small, result.epilogue)(few)


def _error(found: Tensor, expected: Tensor) -> float:
    """The norm of the error over that of the result; infinite if that is not finite."""
    if not found.isfinite().all():
        return math.inf
    norm = float(expected.norm())
    return float((found - expected).norm()) / norm if norm else 0.0


def distinct_layers() -> Iterator[str]:
    """ResNet-50's convolutions, each once: images H x W x C / filters K x R x S / stride."""
    yield "224x224x3/64x7x7/2"
    before = 64
    for stage, pixels in enumerate((56, 28, 14, 7)):
        inner, outer = 64 << stage, 256 << stage
        large = pixels if stage == 0 else 2 * pixels
        image, wide = f"{pixels}x{pixels}", f"{large}x{large}"
        yield f"{wide}x{before}/{inner}x1x1/1"
        if stage:
            yield f"{wide}x{inner}/{inner}x3x3/2"
            yield f"{wide}x{before}/{outer}x1x1/2"
        yield f"{image}x{inner}/{outer}x1x1/1"
        yield f"{image}x{outer}/{inner}x1x1/1"
        yield f"{image}x{inner}/{inner}x3x3/1"
        before = outer
