"""D = epilogue(a convolution of A and B, C): fprop, dgrad and wgrad.

With X the images (N, H, W, C), W the filters (K, R, S, C / groups) and Y the results (N, P, Q, K),

    fprop:  Y[n, p, q, k] = sum over r, s, c of X[n, h, w, c] W[k, r, s, c],
    dgrad:  X[n, h, w, c] = sum over r, s, k of Y[n, p, q, k] W[k, r, s, c],
    wgrad:  W[k, r, s, c] = sum over n, p, q of Y[n, p, q, k] X[n, h, w, c],

where h = p stride_h + r dilation_h - pad_h and w = q stride_w + s dilation_w - pad_w; what lies
outside an image is 0. The sums run over the channels, or filters, of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kronop.descriptions.datatype import Layout
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.numeric import finish, widen
from kronop.descriptions.scalars import EpilogueArguments
from kronop.descriptions.shaped import Shaped
from kronop.descriptions.strided import Strided
from kronop.descriptions.tensor import TensorDescription
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.errors import DescriptionError
from kronop.families.conv2d.gathering import Gathering
from kronop.families.conv2d.size import Conv2dSize, as_size, shapes_of
from kronop.families.conv2d.vocabulary import (
    DgradSwizzle,
    IteratorAlgorithm,
    Operator,
    StrideSupport,
    TensorLayout,
)
from kronop.families.gemm.description import GemmProblem, check_product
from kronop.families.gemm.size import GemmSize
from kronop.families.gemm.vocabulary import IdentitySwizzle1, Swizzle, check_word
from kronop.frozen import dataclass

Shape = tuple[int, ...]
PANEL = 32
"""Channels of a panel of an interleaved tensor."""


def shape_in_memory(shape: Shape, layout: Any) -> Shape:
    """The shape of the array that holds a tensor of this shape, channels last."""
    n, h, w, c = shape
    if layout is TensorLayout.TensorNC32HW32:
        return (n, c // PANEL, h, w, PANEL)
    if layout is TensorLayout.TensorC32RSK32:
        return (c // PANEL, h, w, n, PANEL)
    return shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dDescription(Shaped):
    """The frozen description of a convolution.

    Attributes:
        conv_kind: what is computed.
        iterator_algorithm: PyCUTLASS's word for how kernels find elements; None for any.
        math: multiply-add. Its `element_a` is the type of A and B; tfloat32 stands for float32.
        tile: tile sizes that the user chose, or None.
        A, B: descriptions of the operands: `Operator.tensors` says what they are.
        Y: description of C and D.
        stride_support: `StrideSupport.Unity` promises strides of 1; None for any.
        epilogue: what is done with the sums.
        swizzling_functor: the order in which a GPU takes tiles.

    Raises:
        DescriptionError: types, layouts, or what was promised of tensors, do not agree.
        ElementTypeError: an argument has the wrong class.

    Example:
        >>> tensor = kronop.TensorDescription(kronop.float32, kronop.TensorNHWC)
        >>> epilogue = kronop.LinearCombination(kronop.float32, 1, kronop.float32, kronop.float32)
        >>> dgrad = kronop.conv.Operator.dgrad
        >>> operation = kronop.Conv2dOperation(
        ...     dgrad, None, "x86", None, tensor, tensor, tensor, None, epilogue
        ... )
        >>> isinstance(operation.description, kronop.Conv2dDescription)
        True
    """

    conv_kind: Operator
    iterator_algorithm: IteratorAlgorithm | None
    A: TensorDescription
    B: TensorDescription
    Y: TensorDescription
    stride_support: StrideSupport | None
    epilogue: Epilogue
    swizzling_functor: Swizzle | DgradSwizzle = IdentitySwizzle1

    def __post_init__(self) -> None:
        for name, kind, optional in (
            ("conv_kind", Operator, False),
            ("iterator_algorithm", IteratorAlgorithm, True),
            ("stride_support", StrideSupport, True),
            ("swizzling_functor", Swizzle | DgradSwizzle, False),
        ):
            check_word(name, getattr(self, name), kind, optional=optional)
        check_product(self, (TensorLayout, Layout))
        self._check_layouts()
        self._check_kind()

    def _check_layouts(self) -> None:
        layouts = {"A": self.A.layout, "B": self.B.layout, "C": self.Y.layout}
        is_tree = isinstance(self.epilogue, VisitorEpilogue)
        panels, filters = TensorLayout.TensorNC32HW32, TensorLayout.TensorC32RSK32
        if set(layouts.values()) == {TensorLayout.TensorNHWC}:
            return
        is_fprop = self.conv_kind is Operator.fprop and not is_tree
        if is_fprop and layouts == {"A": panels, "B": filters, "C": panels}:
            return
        raise DescriptionError(
            "layouts of A, B and C",
            expected="kronop.TensorNHWC of all"
            + (f"; or {panels!r}, {filters!r} and {panels!r}" if is_fprop else ""),
            got=", ".join(map(repr, layouts.values())),
            hint="channels are the last axis; torch's tensors: .to(memory_format=channels_last)",
        )

    def _check_kind(self) -> None:
        """Refuses what only some kinds have."""
        few = (IteratorAlgorithm.fixed_channels, IteratorAlgorithm.few_channels)
        kind = self.conv_kind
        if self.iterator_algorithm in few and kind is not Operator.fprop:
            raise DescriptionError(
                "iterator_algorithm",
                expected=f"analytic or optimized, for {kind.name}",
                got=self.iterator_algorithm.name,
                hint="iterators for few channels are those of fprop",
            )

    @property
    def interleaved(self) -> bool:
        """Whether tensors are arrays of panels."""
        return self.Y.layout is not TensorLayout.TensorNHWC

    @property
    def by_taps(self) -> bool:
        """Whether it is computed by taps: see `by_taps`."""
        return by_taps(self.conv_kind, self.epilogue)

    @property
    def adds_rows(self) -> bool:
        return self.conv_kind is not Operator.wgrad  # Whose bias repeats over a filter's pixels.

    def told(self, size: Any) -> Sequence[str]:
        first, second, result = self.conv_kind.tensors
        more = f"groups {size.groups}{', filters flipped' if size.flipped else ''}"
        return (
            f"{self.conv_kind.name}, with rows images: A is {first}, B {second}, Y and Z {result};",
            "axes are images (N, H, W, C), filters (K, R, S, C / groups), results (N, P, Q, K);",
            f"stride {size.stride_h}x{size.stride_w}, padding {size.pad_h}x{size.pad_w} above and"
            f" left, dilation {size.dilation_h}x{size.dilation_w}, {more}.",
        )

    def shapes(self, size: Any) -> dict[str, Any]:
        found, layouts = shapes_of(as_size(size)), (self.A, self.B, self.Y)
        own = zip("ABY", self.conv_kind.tensors, layouts, strict=True)
        return {name: shape_in_memory(found[of], item.layout) for name, of, item in own}

    def size_of(self, a: Shape, b: Shape) -> Conv2dSize:
        """The size of A and B of these shapes, channels last, without strides, padding, dilation
        and groups; wgrad of shapes that do not fit has no pixels of filters."""
        kind = self.conv_kind
        if kind is Operator.fprop:
            (n, h, w, c), (k, r, s, _) = a, b
        elif kind is Operator.dgrad:
            (n, p, q, _), (k, r, s, c) = a, b
            h, w = p + r - 1, q + s - 1
        else:
            (n, p, q, k), (_, h, w, c) = a, b
            r, s = max(0, h - p + 1), max(0, w - q + 1)
        return Conv2dSize(n, h, w, c, k, r, s)

    def reference(
        self,
        a: Any,
        b: Any,
        z: Any = None,
        output_op: EpilogueArguments | None = None,
        bias: Any = None,
        size: Conv2dSize | None = None,
    ) -> Any:
        """The result in NumPy, in float64 or int64, channels last. `z` is C.

        Args:
            size: None for strides of 1 and no padding.

        A visitor tree gives a dictionary of its results, by their names.
        """
        wide = widen(self.math.element_accumulator)
        a, b = np.asarray(a, wide), np.asarray(b, wide)
        size = self.size_of(a.shape, b.shape) if size is None else size
        sums = convolved(self.conv_kind, a, b, size)
        if isinstance(self.epilogue, VisitorEpilogue):  # Its operands are matrices.
            sums = sums.reshape(-1, sums.shape[-1])
        return finish(self.epilogue, output_op, sums, z, bias)


def by_taps(kind: Operator, epilogue: Epilogue) -> bool:
    """Whether each pixel of a filter has a matrix product of its own: a visitor tree has the
    filters' gradient as a matrix (K R S, C), not (K, R S C)."""
    return kind is Operator.wgrad and isinstance(epilogue, VisitorEpilogue)


def product_size(kind: Operator, epilogue: Epilogue, size: Conv2dSize) -> GemmSize:
    """The size of the matrix products, of blocks and warps or of a CPU, as which it is computed."""
    m, n, k = kind.extents(size)
    if not by_taps(kind, epilogue):
        return size.product((m, n, k))
    return GemmSize(m, size.channels, k, size.groups * size.r * size.s, size.slices)


def convolved(kind: Operator, a: Any, b: Any, size: Conv2dSize) -> Any:
    """The sums of a convolution, in NumPy, channels last, of arrays of one type."""
    shapes = shapes_of(size)
    found = dict(zip(kind.tensors, (a, b, np.zeros(shapes[kind.tensors[2]], a.dtype)), strict=True))
    each = range(size.groups)
    for group in each:
        x = found["images"][..., group * size.channels : (group + 1) * size.channels]
        w = found["filters"][group * size.filters : (group + 1) * size.filters]
        y = found["results"][..., group * size.filters : (group + 1) * size.filters]
        for r, s in np.ndindex(size.r, size.s):
            p, h = _pixels(size.p, size.h, size.stride_h, r * size.dilation_h - size.pad_h)
            q, v = _pixels(size.q, size.w, size.stride_w, s * size.dilation_w - size.pad_w)
            tap = (size.r - 1 - r, size.s - 1 - s) if size.flipped else (r, s)
            at, of = np.ix_(range(size.n), p, q), np.ix_(range(size.n), h, v)
            if kind is Operator.fprop:
                y[at] += x[of] @ w[:, *tap].T
            elif kind is Operator.dgrad:
                x[of] += y[at] @ w[:, *tap]
            else:
                w[:, *tap] += np.tensordot(y[at], x[of], axes=((0, 1, 2), (0, 1, 2)))
    return found[kind.tensors[2]]


def _pixels(count: int, extent: int, stride: int, first: int) -> tuple[Any, Any]:
    """The results along an axis for which a filter's pixel is in the image, and where it is."""
    results = np.arange(count)
    pixels = results * stride + first
    inside = (pixels >= 0) & (pixels < extent)
    return results[inside], pixels[inside]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2dProblem:
    """A convolution with its memory.

    Attributes:
        kind: what is computed.
        size: its extents.
        a, b, y: the operands and the result, channels last: four strides each. Those of `y` along
            all axes but the channels (of wgrad: but the filters) are those of one index.
        z: the source C, as a matrix like the result; None where beta is 0.
        bias: row 0 of it has one number for each column of the result; None if there is none.
        by_taps: the products are those of `by_taps`, so matrices are (K R S, C) of wgrad.
        visited: operands, then auxiliary results of a visitor tree, as matrices.
        scalars: alpha, beta, then those of the activation; those of a visitor tree.
        threads: of a host.
        workspace: the address of the plan's scratch memory; 0 if it needs none.
    """

    kind: Operator
    size: Conv2dSize
    a: Strided
    b: Strided
    y: Strided
    z: Strided | None
    bias: Strided | None
    scalars: tuple[float, ...]
    threads: int
    by_taps: bool = False
    visited: tuple[Strided, ...] = ()
    workspace: int = 0

    @property
    def result(self) -> Strided:
        """The result as a matrix of M rows and N columns, for each product."""
        strides, size = self.y.strides, self.size
        if self.by_taps:
            first, *taps, last = strides
            return Strided(
                pointer=self.y.pointer,
                strides=(first, last),
                batch=(size.filters * first, *taps),
            )
        if self.kind is Operator.wgrad:
            # Columns are the pixels and channels of a filter.
            return Strided(
                pointer=self.y.pointer,
                strides=(strides[0], strides[3]),
                batch=(size.filters * strides[0],),
            )
        each = size.filters if self.kind is Operator.fprop else size.channels
        return Strided(
            pointer=self.y.pointer, strides=(strides[2], strides[3]), batch=(each * strides[3],)
        )

    @property
    def product(self) -> GemmProblem:
        """The same as a batch of matrix products, one for each group, or by taps."""
        size, gathering = self.size, Gathering(self.size, self.a, self.b, self.by_taps)
        a, b = gathering.operands(self.kind)
        m, n, k = self.kind.extents(size)
        return GemmProblem(
            m=m,
            n=size.channels if self.by_taps else n,
            k=k,
            batch=(size.groups, size.r, size.s) if self.by_taps else (size.groups,),
            a=a,  # type: ignore[arg-type]
            b=b,  # type: ignore[arg-type]
            y=self.result,
            z=self.z,
            bias=self.bias,
            scalars=self.scalars,
            threads=self.threads,
            visited=self.visited,
            slices=size.slices,
            workspace=self.workspace,
        )
