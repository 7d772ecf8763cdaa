"""Convolutions against torch's, measured: times, errors against float64, shares of the floor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kronop.bench.arrays import Arrays
from kronop.bench.protocol import sets_for
from kronop.bench.table import Table
from kronop.bench.timing import Measured, PeerUnavailableError, Setting, Timing
from kronop.bench.torch_case import (
    COLUMNS,
    TorchCase,
    activated,
    floor_of,
    relative_error,
    time_beside,
)
from kronop.descriptions.datatype import result_type
from kronop.families.conv2d.api import arguments_of, conv2d, conv2d_input, conv2d_weight
from kronop.families.conv2d.size import Conv2dSize, shapes_of
from kronop.families.conv2d.vocabulary import Operator
from kronop.tensors import Tensor

# torch in eager mode; cuDNN's one kernel with bias and relu; torch.compile of all that is computed.
PEERS = ("torch", "fused", "compiled")
_CHECKED_IMAGES = 2
_CHECKED_FILTERS = 8
TABLE = Table((("images / filters", 34), ("kind", 6), ("type", 9), *COLUMNS)).beside(
    PEERS, "{} ms (gain) in a graph", 26
)
_Way = Callable[["_Operands"], Any]


@dataclass(slots=True, kw_only=True)
class Result(TorchCase):
    """The measurements of one case."""

    size: Conv2dSize
    kind: Operator

    @property
    def text(self) -> str:
        s = self.size
        groups = f" /{s.groups}" if s.groups > 1 else ""
        steps = f" by {s.stride_h}" if s.stride_h > 1 else ""
        return f"{s.n}x{s.h}x{s.w}x{s.c}/{s.k}x{s.r}x{s.s}{steps}{groups}"

    @property
    def names(self) -> list[str]:
        return [self.text, self.kind.name, self.dtype, self.epilogue]

    @property
    def moved(self) -> int:
        return self.kind.moved(self.size, self.element, result_type(self.element))

    @property
    def operations(self) -> int:
        return 2 * self.size.products

    @property
    def spent(self) -> float | None:
        """As of `TorchCase`, in a CUDA graph where there is one."""
        return self.kronop.ms if self.kronop.graph_ms is None else self.kronop.graph_ms

    def beside(self, peer: Timing) -> str:
        """A peer's time and its ratio to kronop's: in graphs, if both were captured."""
        text = Measured.beside(self, peer)
        if peer.graph_ms is None or self.kronop.graph_ms is None:
            return text
        return f"{text} {peer.graph_ms / self.kronop.graph_ms:.2f}x"

    def as_json(self) -> dict[str, object]:
        shapes = shapes_of(self.size)
        of = {name: shapes[name] for name in ("images", "filters")} | _geometry(self.size)
        return {**of, "kind": self.kind.name, **TorchCase.as_json(self)}


@dataclass(frozen=True, slots=True)
class _Operands:
    """Images, filters, the gradient of results and a bias, in torch's shapes, channels last; the
    result takes the place of one of them."""

    x: Tensor
    w: Tensor
    grad: Tensor
    bias: Tensor


def measure(result: Result, setting: Setting) -> None:
    """Fills in what is measured."""
    arrays = setting.arrays
    sets = [_operands(result, arrays) for _ in range(sets_for(result.moved))]
    result.peers = {name: Timing() for name in PEERS}
    expected = _part(result, sets[0])

    def way_of(name: str) -> _Way | None:
        return _own(result) if name == "kronop" else _peer(name, result, arrays.device)

    def error_of(found: Tensor) -> float:
        return relative_error(_checked(result, found), expected)

    depth = result.kind.extents(result.size)[2]
    time_beside(result, setting, sets, way_of, error_of, called="conv2d", depth=depth, graph=True)
    result.floor = floor_of(_arguments(result, sets[0]))


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
    activation = result.activation
    return lambda item: conv2d(item.x, item.w, item.bias, activation=activation, **how)


def _arguments(result: Result, item: _Operands) -> Any:
    by_name = {"images": item.x, "filters": item.w, "results": item.grad}
    a, b = (by_name[name].permute(0, 2, 3, 1) for name in result.kind.tensors[:2])
    return arguments_of(result.kind, a, b, result.size, item.bias, result.activation)


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
    way = _by_torch(result, result.size)
    if name == "torch":
        return way
    if device != "cuda" or result.epilogue == "none":
        return None
    if name == "compiled":
        both = torch.compile(_convolving(result, result.size), dynamic=False)
        return lambda item: both(item.x, item.w, item.bias)
    if result.epilogue != "relu":
        return None
    stride, padding, groups = _geometry(result.size).values()
    return lambda item: torch.cudnn_convolution_relu(
        item.x, item.w, item.bias, stride, padding, (1, 1), groups
    )


def _by_torch(result: Result, size: Conv2dSize) -> _Way:
    import torch

    kind, how = result.kind, _geometry(size)
    if kind is Operator.fprop:
        convolve = _convolving(result, size)
        return lambda item: convolve(item.x, item.w, item.bias)
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


def _convolving(result: Result, size: Conv2dSize) -> Callable[..., Tensor]:
    """What takes x, w and a bias."""
    import torch

    how = _geometry(size)
    return activated(result, functools.partial(torch.nn.functional.conv2d, **how))


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
    return _by_torch(result, small)(few)


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
