"""Kronecker-sparse layers whose factors are split over ranks, for `parallelize_module`.

A factor of pattern (a, b, c, d) multiplies a d separate blocks. Where ranks divide a, each has
neighbouring features and the blocks that these meet; where they divide d, each has some of every d
neighbouring features, and again whole blocks. So a factor needs no exchange, and where one follows
that is split along the other digit, an all-to-all brings each rank its features.
"""

from __future__ import annotations

import math
import types
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import compiler
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard, distribute_tensor
from torch.distributed.tensor.parallel.style import ParallelStyle

from kronop.distributed import agreement, exchange
from kronop.errors import ArgumentError, ElementTypeError
from kronop.torch import ksmm
from kronop.torch.nn import KSLinear


class KSParallel(ParallelStyle):  # type: ignore[misc]  # mypy sees no types of torch.
    """How `torch.distributed.tensor.parallel.parallelize_module` splits a `KSLinear`.

    Every factor (a, b, c, d) is split over the mesh along a or, where that is not divisible, along
    d; weights become DTensors. A chain costs one all-to-all wherever factors that follow each
    other are split along different digits, and one more if the last one is split along d, to bring
    the features into order.

    Args:
        input_layouts: the placement of inputs that are local tensors: `Shard(-1)`, neighbouring
            features on each rank, or `Replicate()`.
        output_layouts: that of results, one of the same two.
        use_local_output: whether results are local tensors; else DTensors.

    Raises:
        ArgumentError, when it is applied: ranks divide neither a nor d of a factor, or the layer's
            features come before the batch.
        ElementTypeError, when it is applied: the module is no `KSLinear`.

    Example:
        >>> import torch, kronop.distributed
        >>> from torch import distributed
        >>> from torch.distributed.tensor.parallel import parallelize_module
        >>> # A group of this process alone; under torchrun, init_process_group("nccl"):
        >>> distributed.init_process_group(
        ...     "gloo", store=distributed.HashStore(), rank=0, world_size=1
        ... )
        >>> mesh = distributed.init_device_mesh("cpu", (distributed.get_world_size(),))
        >>> layer = kronop.torch.nn.KSLinear([(4, 4, 4, 1), (1, 4, 4, 4)])
        >>> split = parallelize_module(layer, mesh, kronop.distributed.KSParallel())
        >>> split(torch.ones(3, 16)).shape, split.weights[0].placements
        (torch.Size([3, 16]), (Shard(dim=0),))
        >>> distributed.destroy_process_group()
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__()
        self.input_layouts = (Shard(-1) if input_layouts is None else input_layouts,)
        self.output_layouts = (Shard(-1) if output_layouts is None else output_layouts,)
        self.use_local_output = use_local_output

    def _apply(self, module: KSLinear, device_mesh: DeviceMesh) -> KSLinear:
        _check(module)
        ranks = device_mesh.size()
        digits = [_digit(pattern, ranks) for pattern in module.patterns]
        _check_exchanges(module.patterns, digits, ranks)
        for own, digit in zip(module.weights._parameters, digits, strict=True):
            module.weights[int(own)] = _split(module.weights[int(own)], device_mesh, digit)
        if module.bias is not None:
            module.bias = _split(module.bias, device_mesh, 0)

        def forward(module: KSLinear, x: torch.Tensor) -> torch.Tensor:
            return self._forward(module, device_mesh, digits, x)

        # A method, so that a copy of the module multiplies with its own weights.
        module.forward = types.MethodType(compiler.disable(forward), module)  # type: ignore[method-assign]
        return module

    def _forward(
        self, module: KSLinear, mesh: DeviceMesh, digits: Sequence[int], x: torch.Tensor
    ) -> torch.Tensor:
        _check_features(module, x, self.input_layouts[0], mesh.size())
        if not isinstance(x, DTensor):
            x = DTensor.from_local(x, mesh, self.input_layouts, run_check=False)
        local = x.redistribute(mesh, [Shard(x.dim() - 1)]).to_local()
        found = _chain(local, module, digits, mesh.get_group())
        result = DTensor.from_local(found, mesh, [Shard(found.dim() - 1)], run_check=False)
        result = result.redistribute(mesh, self.output_layouts)
        return result.to_local() if self.use_local_output else result


def _check_features(module: KSLinear, x: torch.Tensor, layout: Placement, ranks: int) -> None:
    """Raises ArgumentError where x has other features than the layer, or than a rank's share."""
    is_share = not isinstance(x, DTensor) and isinstance(layout, Shard)
    features = module.in_features // ranks if is_share else module.in_features
    if not x.dim() or x.shape[-1] != features:
        each = f", {module.in_features} features over {ranks} ranks" if is_share else ""
        raise ArgumentError(
            "shape of x",
            expected=f"(..., {features}){each}",
            got=tuple(x.shape),
            hint="the features of a KSParallel layer are the last dimension",
        )


def _split(parameter: torch.nn.Parameter, mesh: DeviceMesh, dim: int) -> torch.nn.Parameter:
    spread = distribute_tensor(parameter.detach(), mesh, [Shard(dim)])
    return type(parameter)(spread, requires_grad=parameter.requires_grad)


def _check(module: object) -> None:
    if not isinstance(module, KSLinear):
        hint = "give other modules torch's own styles"
        raise ElementTypeError(
            "module of KSParallel", expected="a KSLinear", got=type(module).__name__, hint=hint
        )
    if module.bs_last:
        hint = "make the layer without bs_last"
        raise ArgumentError("bs_last", expected="False for KSParallel", got="True", hint=hint)


def _digit(pattern: Sequence[int], ranks: int) -> int:
    """Of (a, b, c, d), which is split: 0 or 3."""
    for digit in (0, 3):
        if pattern[digit] % ranks == 0:
            return digit
    raise ArgumentError(
        "pattern of a layer that is split",
        expected=f"(a, b, c, d) with a or d a multiple of {ranks} ranks",
        got=tuple(pattern),
        hint="take fewer ranks, or factors of more blocks",
    )


def _check_exchanges(patterns: Sequence[Sequence[int]], digits: Sequence[int], ranks: int) -> None:
    """Raises ArgumentError where features between two factors are no whole rows on each rank."""
    features, split = patterns[0][0] * patterns[0][2] * patterns[0][3], 1
    for (a, b, _, d), digit in zip([*patterns, (1, 1, 1, 1)], [*digits, 0], strict=True):
        needed = 1 if digit == 0 else d
        for other in {split, needed} - {1} if split != needed else ():
            if features // other % ranks:
                raise ArgumentError(
                    f"{features} features between factors of a layer that is split",
                    expected=f"a multiple of {ranks} ranks x {other}, the digit that is split",
                    got=f"{features // other} x {other}",
                    hint="take fewer ranks, or factors of other blocks",
                )
        features, split = a * b * d if (a, b, d) != (1, 1, 1) else features, needed


def _chain(
    x: torch.Tensor, module: KSLinear, digits: Sequence[int], group: dist.ProcessGroup
) -> torch.Tensor:
    """(..., features / ranks), neighbouring features in and out."""
    told = f"a layer of {module.patterns} for x {tuple(x.shape)} of {x.dtype}"
    agreement.check([group], told, "split over ranks", [])
    lead, split = x.shape[:-1], 1
    x = x.reshape(math.prod(lead), x.shape[-1])
    for weight, digit, pattern in zip(module.weights, digits, module.patterns, strict=True):
        needed = 1 if digit == 0 else pattern[3]
        x, split = _exchanged(x, split, needed, group), needed
        x = ksmm(x, weight.to_local())
    x = _exchanged(x, split, 1, group)
    if module.bias is not None:
        x = x + module.bias.to_local()
    return x.view(*lead, x.shape[-1])


def _exchanged(x: torch.Tensor, split: int, needed: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Features (rows, `needed`) split along their last digit, where they were (rows, `split`) split
    so; with a digit of 1, along the rows: each rank has neighbouring features."""
    if split == needed:
        return x
    if split != 1:
        x = _to_rows(x, split, group)
    return x if needed == 1 else _to_digit(x, needed, group)


def _to_digit(x: torch.Tensor, digit: int, group: dist.ProcessGroup) -> torch.Tensor:
    ranks = dist.get_world_size(group)
    places = x.unflatten(1, (-1, ranks, digit // ranks))  # m, own rows, rank, its share
    received = _all_to_all(places.permute(2, 0, 1, 3), group)
    return received.transpose(0, 1).flatten(1)


def _to_rows(x: torch.Tensor, digit: int, group: dist.ProcessGroup) -> torch.Tensor:
    ranks = dist.get_world_size(group)
    places = x.unflatten(1, (ranks, -1, digit // ranks))  # m, rank, its rows, own share
    received = _all_to_all(places.transpose(0, 1), group)
    return received.permute(1, 2, 0, 3).flatten(1)


def _all_to_all(item: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    return exchange.exchanged(item.unsqueeze(0), group)[0]
