"""What ranks of a distributed test do: cases by name, which raise where something is wrong."""

from __future__ import annotations

import copy
import functools
import math
import os
import shutil
import tempfile
import traceback
import unittest.mock
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module

import kronop.distributed
import kronop.torch
from kronop import knobs
from kronop.compiler import build, host_backend
from kronop.distributed import bench, columns, exchange, functional, planning
from kronop.distributed.steps import Choice, Problem, Way
from kronop.errors import KronopError
from kronop.torch.nn import KSLinear

Shapes = Sequence[tuple[int, int]]
# Most cases have these, since each shape of a factor is a kernel to compile.
CUBE = [(4, 4)] * 3
CASES: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


@functools.cache
def mesh(*shape: int) -> Any:
    return init_device_mesh(device(), shape, mesh_dim_names=("rows", "columns")[-len(shape) :])


@functools.cache
def pair() -> Any:
    """The two ranks that this one is of."""
    return mesh(dist.get_world_size() // 2, 2).get_group("columns")


def whole(m: int, shapes: Shapes, dtype: Any = torch.float64) -> tuple[Any, list[Any], Any, Any]:
    """X, factors, Z and a gradient, the same on all ranks."""
    torch.manual_seed(3)
    k, q = (math.prod(shape[axis] for shape in shapes) for axis in (0, 1))
    sizes = [(m, k), *shapes, (m, q), (m, q)]
    if dtype is torch.int8:
        made = [torch.randint(-3, 4, size, dtype=dtype) for size in sizes]
    else:
        made = [torch.randn(size, dtype=torch.float64).to(dtype) for size in sizes]
    x, *factors, z, gradient = (item.to(device()) for item in made)
    return x, factors, z, gradient


def reference(x: Any, factors: Sequence[Any]) -> Any:
    return x @ functools.reduce(torch.kron, factors)


def wanted(
    operands: Sequence[Any], gradient: Any, alpha: float, beta: float
) -> tuple[Any, list[Any]]:
    """The product of x, factors and maybe z, and gradients for all of them, by torch."""
    items = [item.detach().double().requires_grad_() for item in operands]
    x, *others = items
    z = others.pop() if beta else None
    result = alpha * reference(x, others)
    result = result + beta * z if beta else result
    return result.detach(), list(torch.autograd.grad(result, items, gradient.double()))


def close(found: Any, expected: Any, what: str, digits: float = 1e-10) -> None:
    expected = expected.detach()
    allowed = digits * max(1.0, float(expected.abs().max()) if expected.numel() else 1.0)
    assert found.shape == expected.shape, f"{what}: {tuple(found.shape)}, {tuple(expected.shape)}"
    worst = float((found.detach().double() - expected).abs().max()) if expected.numel() else 0.0
    assert worst <= allowed, f"{what} is off by {worst:.1e}, {allowed:.1e} allowed"


def share(item: Any, group: Any, dim: int = 1) -> Any:
    """This rank's neighbours of a tensor that all ranks of a group share."""
    chunks, rank = item.chunk(dist.get_world_size(group), dim), dist.get_rank(group)
    return chunks[rank] if rank < len(chunks) else item.narrow(dim, 0, 0)


def own(item: Any, group: Any) -> Any:
    return share(item.detach(), group).clone().requires_grad_(item.is_floating_point())


def left_as(choice: Choice | None, item: Any, shapes: Shapes, group: Any) -> Any:
    """This rank's share of a product that stays split as `choice` leaves it, or of columns."""
    if choice is not None and choice.way is Way.Rows:
        return share(item, group, 0)
    if choice is not None and choice.way is Way.Digits:
        results = math.prod(q for _, q in shapes[: choice.outer])
        return share(item.unflatten(1, (results, -1)), group, 2)
    return share(item, group)


def check_columns(
    run: Callable[..., Any], m: int, shapes: Shapes, group: Any, left: Choice | None = None
) -> None:
    """Compares a product of columns and its gradients with torch's; where `left` is given, the
    result stays split as that choice leaves it, and has no z."""
    x, factors, z, gradient = whole(m, shapes)
    alpha, beta = 1.5, 0.0 if left else 0.5
    operands = [x, *factors, z] if beta else [x, *factors]
    result, gradients = wanted(operands, gradient, alpha, beta)
    local = [own(x, group), *(item.clone().requires_grad_() for item in factors)]
    source = own(z, group) if beta else None
    found = run(local[0], local[1:], alpha=alpha, beta=beta or None, z=source)
    of = functools.partial(left_as, left, shapes=shapes, group=group)
    close(found, of(result), "the product")
    local = local if source is None else [*local, source]
    mine = list(torch.autograd.grad(found, local, of(gradient).contiguous()))
    close(mine[0], share(gradients[0], group), "the gradient of x")
    for at in range(len(factors)):
        close(mine[1 + at], gradients[1 + at], f"the gradient of factor {at}")
    if source is not None:
        close(mine[-1], share(gradients[-1], group), "the gradient of z")


def possible(m: int, shapes: Shapes, ranks: int) -> list[Problem]:
    """Problems of these shapes: standard results, and those that stay split."""
    made = functools.partial(Problem, m=m, shapes=tuple(shapes), grid=(1, ranks), element_bytes=8)
    return [
        made(ordered=True),
        made(ordered=True, by_rows=False),
        made(ordered=False),
        made(ordered=False, rows_split=False),
    ]


def _by_way(problem: Problem, choice: Choice, group: Any, x: Any, factors: Any, **more: Any) -> Any:
    shared = [exchange.all_reduced_gradient(item, [group]) for item in factors]
    work = columns.Work(choice=choice, group=group, alpha=more["alpha"], ordered=problem.ordered)
    x = x if problem.by_rows else x.mT.contiguous().mT
    found = columns.product(work, x, shared)
    return found if more["z"] is None else found + more["beta"] * more["z"]


def _every_way(m: int, shapes: Shapes, group: Any) -> set[Way]:
    """Results and gradients of all choices that the planner has, and their parts."""
    seen = set()
    for problem in possible(m, shapes, dist.get_world_size(group)):
        for choice in planning.choices(problem):
            run = functools.partial(_by_way, problem, choice, group)
            try:
                check_columns(run, m, shapes, group, choice if not problem.ordered else None)
            except (AssertionError, RuntimeError) as error:
                raise AssertionError(f"{choice}, {problem}: {error}") from error
            seen.add(choice.way)
    return seen


@case
def every_way_on_all_ranks() -> None:
    """Shares of one digit and of two; rectangular factors; few rows, none, and uneven ones."""
    few = {Way.Digits, Way.ReduceScatter, Way.AllGather}
    for m, shapes in ((8, CUBE), (3, CUBE), (0, CUBE), (9, [(2, 4), (2, 2), (3, 4)])):
        found = _every_way(m, shapes, dist.group.WORLD)
        assert found == (few if m < dist.get_world_size() else {*few, Way.Rows})


@case
def every_way_on_two_ranks() -> None:
    for m in (8, 1):
        _every_way(m, CUBE, pair())


@case
def rows_that_some_ranks_lack() -> None:
    """Ranks choose alike, whatever their own share is; those without rows take part."""
    grid = mesh(dist.get_world_size() // 2, 2)
    for m in (1, 3, 6):
        x, factors, _, gradient = whole(m, CUBE)
        result, gradients = wanted([x, *factors], gradient, 1.0, 0.0)
        for output in ("standard", "any"):
            spread = distribute_tensor(x, grid, [Shard(0), Shard(1)]).requires_grad_()
            made = [item.clone().requires_grad_() for item in factors]
            found = kronop.distributed.gemkm(spread, made, output=output)
            told: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(told, (tuple(found.placements), found.shape))
            assert len(set(told)) == 1, told
            close(found.full_tensor().flatten(1), result, f"{m} rows, {output}")
            given = distribute_tensor(gradient.view(found.shape), grid, found.placements)
            mine = torch.autograd.grad(found, [spread, *made], given)
            close(mine[0].full_tensor(), gradients[0], f"{m} rows, {output}: the gradient of x")
            for at, (one, other) in enumerate(zip(mine[1:], gradients[1:], strict=True)):
                close(one, other, f"{m} rows, {output}: gradient {at}")


@case
def few_local_rows_there_and_back() -> None:
    """A result that is split along inner digits is an operand again."""
    x, factors, z, _ = whole(1, CUBE)
    run = functools.partial(kronop.distributed.gemkm, columns=True)
    once = run(share(x, dist.group.WORLD), factors, output="any")
    ranks = dist.get_world_size()
    assert once.shape == (1, 4, 16 // ranks), once.shape
    twice = run(once, factors, beta=2.0, z=share(z, dist.group.WORLD).contiguous())
    goal = reference(reference(x, factors), factors) + 2 * z
    close(twice, share(goal, dist.group.WORLD), "two products")


@case
def factors_of_any_layout() -> None:
    x, factors, _, _ = whole(8, [(2, 2)] * 4)
    mixed = [item if at % 2 else item.mT.contiguous().mT for at, item in enumerate(factors)]
    found = kronop.distributed.gemkm(share(x, dist.group.WORLD), mixed, columns=True)
    close(found, share(reference(x, factors), dist.group.WORLD), "the product")


@case
def autocast_decides_the_type() -> None:
    for m in (1, 8):
        x, factors, _, _ = whole(m, CUBE, torch.float32)
        with torch.autocast(device(), torch.bfloat16):
            found = kronop.distributed.gemkm(share(x, dist.group.WORLD), factors, columns=True)
        assert found.dtype is torch.bfloat16
        exact = reference(x.double(), [item.double() for item in factors])
        close(found, share(exact, dist.group.WORLD), "the product", 6e-2)


@case
def the_plan_chooses() -> None:
    """By the public function, for shapes that are served in different ways."""
    for group in (pair(), dist.group.WORLD):
        for shapes in (CUBE, [(4, 8)]):
            run = functools.partial(kronop.distributed.gemkm, group=group, columns=True)
            check_columns(run, 6, shapes, group)


@case
def results_that_stay_split() -> None:
    """There with one exchange, and back with one more, gradients too."""
    grid = mesh(dist.get_world_size() // 2, 2)
    x, factors, z, gradient = whole(6, CUBE)
    placements = [Shard(0), Shard(1)]
    inputs = [
        distribute_tensor(x, grid, placements).requires_grad_(),
        *(item.clone().requires_grad_() for item in factors),
        distribute_tensor(z, grid, placements).requires_grad_(),
    ]
    # The plan of so small a product gathers X.
    choice = Choice(way=Way.Digits, outer=1)
    with unittest.mock.patch.object(functional.planning, "best", return_value=choice):
        split = kronop.distributed.gemkm(inputs[0], inputs[1:-1], output="any")
    assert split.shape == (6, 4, 16)
    assert tuple(split.placements) == (Shard(0), Shard(2))
    close(split.full_tensor().flatten(1), reference(x, factors), "the product")
    back = kronop.distributed.gemkm(split, inputs[1:-1], alpha=0.5, beta=2.0, z=inputs[-1])
    assert tuple(back.placements) == tuple(placements)
    exact = [item.detach().clone().requires_grad_() for item in (x, *factors, z)]
    goal = 0.5 * reference(reference(exact[0], exact[1:-1]), exact[1:-1]) + 2 * exact[-1]
    close(back.full_tensor(), goal.detach(), "two products")
    found = torch.autograd.grad(back, inputs, distribute_tensor(gradient, grid, placements))
    wanted_ones = torch.autograd.grad(goal, exact, gradient)
    for at, (one, other) in enumerate(zip(found, wanted_ones, strict=True)):
        close(one.full_tensor() if isinstance(one, DTensor) else one, other, f"gradient {at}")
    refused(lambda: kronop.distributed.gemkm(split, factors[:1]), "A x B = K", "got (6, 4, 16)")


@case
def tensors_over_a_grid() -> None:
    """Rows and columns split; factors that are plain, replicated, and split."""
    grid = mesh(dist.get_world_size() // 2, 2)
    x, factors, z, gradient = whole(7, CUBE)
    result, gradients = wanted([x, *factors, z], gradient, 0.5, 2.0)
    for placements in (
        [Shard(0), Shard(1)],
        [Replicate(), Shard(-1)],
        [Shard(1), Replicate()],
        [Shard(0), Replicate()],
        [Shard(0), Shard(0)],
    ):
        spread = [
            distribute_tensor(item.detach(), grid, placements).requires_grad_() for item in (x, z)
        ]
        made = [
            factors[0].clone().requires_grad_(),
            distribute_tensor(factors[1].clone(), grid, [Replicate()] * 2).requires_grad_(),
            distribute_tensor(factors[2].clone(), grid, [Shard(0), Replicate()]).requires_grad_(),
        ]
        found = kronop.distributed.gemkm(spread[0], made, alpha=0.5, beta=2.0, z=spread[1])
        assert tuple(found.placements) == tuple(
            Shard(1) if item == Shard(-1) else item for item in placements
        )
        close(found.full_tensor(), result, f"{placements}: the product")
        given = distribute_tensor(gradient, grid, placements)
        mine = torch.autograd.grad(found, [spread[0], *made, spread[1]], given)
        for at, (one, other) in enumerate(zip(mine, gradients, strict=True)):
            one = one.full_tensor() if isinstance(one, DTensor) else one
            close(one, other, f"{placements}: gradient {at}")


@case
def the_left_side() -> None:
    """Of DTensors and of local tensors, with gradients; shares of one digit and of two."""
    group, grid = dist.group.WORLD, mesh(dist.get_world_size() // 2, 2)
    for shapes in (CUBE, [(2, 2), (2, 2), (4, 3)]):
        x, factors, z, gradient = whole(6, shapes)
        result, gradients = wanted([x, *factors, z], gradient, 1.0, 2.0)
        turned = [item.mT.contiguous().requires_grad_() for item in factors]
        spread = distribute_tensor(x.mT.contiguous(), grid, [Shard(1), Shard(0)])
        found = kronop.distributed.gekmm([item.detach() for item in turned], spread)
        close(found.full_tensor(), (result - 2 * z).mT, "the product")
        local = share(x.mT.contiguous(), group, 0).clone().requires_grad_()
        source = share(z.mT.contiguous(), group, 0)
        found = kronop.distributed.gekmm(turned, local, beta=2.0, z=source, columns=True)
        close(found, share(result.mT, group, 0), "the local product")
        cut = share(gradient.mT.contiguous(), group, 0)
        of_x, *others = torch.autograd.grad(found, [local, *turned], cut)
        close(of_x, share(gradients[0].mT, group, 0), "the gradient of x")
        for at, (one, other) in enumerate(zip(others, gradients[1:-1], strict=True)):
            close(one, other.mT, f"the gradient of factor {at}")


@case
def every_type() -> None:
    """By every way, with one part; those of bfloat16 by rows alone, for the time it takes."""
    group = pair()
    for dtype, digits in (
        (torch.float32, 1e-5),
        (torch.bfloat16, 6e-2),
        (torch.int8, 0.0),
    ):
        x, factors, z, _ = whole(6, CUBE, dtype)
        exact = 2 * reference(x.double(), [item.double() for item in factors])
        for problem in possible(6, CUBE, 2):
            for choice in planning.choices(problem):
                is_other = dtype is torch.bfloat16 and choice.way is not Way.Rows
                if choice.later or choice.parts > 1 or is_other:
                    continue
                local = share(x, group).contiguous()
                found = _by_way(problem, choice, group, local, factors, alpha=2.0, z=None)
                goal = left_as(choice if not problem.ordered else None, exact, CUBE, group)
                close(found, goal, f"{dtype} by {choice}", digits)
        z = z.int() if dtype is torch.int8 else z
        run = functools.partial(kronop.distributed.gemkm, group=group, columns=True)
        found = run(share(x, group), factors, alpha=2.0, beta=3.0, z=share(z, group).contiguous())
        close(found, share(exact + 3 * z.double(), group), f"{dtype} with z", digits)


@case
def rows_alone() -> None:
    """No rank waits for another one."""
    x, factors, _, _ = whole(5, [(3, 2), (2, 5)])
    local = x[dist.get_rank() : dist.get_rank() + 1]
    close(kronop.distributed.gemkm(local, factors), reference(local, factors), "the product")


def refused(call: Callable[[], object], *told: str) -> None:
    try:
        call()
    except KronopError as error:
        missing = [item for item in told if item not in str(error)]
        if missing:
            raise AssertionError(f"{missing} is not in {error}") from error
        return
    raise AssertionError(f"nothing was raised, expected {told}")


@case
def what_does_not_fit_is_refused_everywhere() -> None:
    group, part, ranks = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
    run = functools.partial(kronop.distributed.gemkm, group=group, columns=True)
    x, factors, z, _ = whole(4, [(3, 3), (5, 5)])
    refused(lambda: run(x[:, :3], factors), f"with a K that {ranks} ranks divide")
    uneven = distribute_tensor(x, mesh(ranks), [Shard(1)])
    refused(lambda: kronop.distributed.gemkm(uneven, factors), f"got {ranks}; they have to divide")
    x, factors, z, _ = whole(4, [(4, 4), (4, 4)])
    local = share(x, group)
    refused(lambda: run(local[: 3 + part % 2], factors), "the same on every rank", "rank")
    refused(lambda: run(local, factors, alpha=1.0 + (part == 1)), "alpha=2.0", "rank 1:")
    source = share(z, group)[: 4 - (part == 1)].contiguous()
    refused(lambda: run(local, factors, beta=1.0, z=source), "z (3, ", "the same on every rank")
    mine = local.clone().requires_grad_(part == 1)
    refused(lambda: run(mine, factors), "gradients of operands [0]", "rank 1:")
    other = [factors[0], factors[1] + (part == 1)]
    refused(lambda: run(local, other), "values of factors[1]", "rank 1:")
    refused(lambda: run(local, factors, output="all"), "'standard'")
    refused(lambda: run(local, factors, z=z, beta=1.0, output="any"), "output='any'")
    refused(lambda: run(local, factors, z=z, beta=1.0), "shape of z")
    refused(lambda: run(local, [item.float() for item in factors]), "element type of factors[0]")
    refused(lambda: run(local, factors, beta=1.0), "beta: expected none without z")
    refused(lambda: run(local.numpy(force=True), factors), "x: expected a torch tensor")
    refused(lambda: run(local, []), "factors: expected at least one")
    grid = mesh(ranks // 2, 2)
    spread = distribute_tensor(x, grid, [Shard(1), Shard(1)])
    refused(lambda: kronop.distributed.gemkm(spread, factors), "at most once")
    spread = distribute_tensor(x, grid, [Shard(0), Shard(1)])
    other = [factors[0] + (part == ranks - 1), factors[1]]
    refused(lambda: kronop.distributed.gemkm(spread, other), f"rank {ranks - 1}:")
    refused(
        lambda: kronop.distributed.gemkm(spread, factors, beta=1.0, z=z), "z: expected a DTensor"
    )
    refused(lambda: run(local, [distribute_tensor(factors[0], grid), factors[1]]), "a local tensor")
    mine = local.clone().requires_grad_()
    standard, choice = possible(4, [(4, 4)] * 2, ranks)[0], Choice(way=Way.Rows, outer=1)
    found = _by_way(standard, choice, group, mine, factors, alpha=1.0, z=None)
    twice = functools.partial(torch.autograd.grad, found.sum(), mine, create_graph=True)
    refused(twice, "differentiable once")


@case
def messages_tell_the_shapes_that_the_caller_gave() -> None:
    """Of whole DTensors, not of this rank's shares, flattened or transposed ones."""
    ranks, factors = dist.get_world_size(), [torch.eye(4, device=device())] * 2
    gemkm, gekmm = kronop.distributed.gemkm, kronop.distributed.gekmm

    def spread(placement: Any, *shape: int) -> Any:
        return distribute_tensor(torch.ones(shape, device=device()), mesh(ranks), [placement])

    for by in (Shard(0), Shard(1), Replicate()):
        x, turned = spread(by, 8, 16), spread(by, 16, 8)
        refused(lambda by=by: gemkm(spread(by, 8, 20), factors), "K = 16", "got (8, 20)")
        refused(lambda by=by: gekmm(factors, spread(by, 20, 8)), "(K, M)", "got (20, 8)")
        z, other = spread(by, 8, 20), spread(by, 20, 8)
        refused(lambda x=x, z=z: gemkm(x, factors, 1.0, 1.0, z), "(8, 16), got (8, 20)")
        refused(lambda x=turned, z=other: gekmm(factors, x, 1.0, 1.0, z), "(16, 8), got (20, 8)")
        many = [factors[0][None, :, :3], factors[1]]
        refused(lambda x=turned, many=many: gekmm(many, x), "factors[0]", "got (1, 4, 3)")
    refused(lambda: gemkm(spread(Shard(0), 8, 4, 20), factors), "got (8, 4, 20)")
    refused(lambda: gemkm(spread(Shard(2), 8, 4, 20), factors), "got (8, 4, 20)")
    refused(lambda: gemkm(spread(Shard(2), 8, 2, 8), factors), "(M, A, B), B over", "got (8, 2, 8)")
    refused(lambda: gekmm(factors, spread(Shard(0), 8, 16, 4)), "(K, M)", "got (8, 16, 4)")
    local = torch.ones(20, 3, device=device())
    refused(lambda: gekmm(factors, local), "(K, M), with K = 16, got (20, 3)")
    refused(lambda: gekmm(factors, local, columns=True), f"({16 // ranks}, M)", "got (20, 3)")
    layer = KSLinear([(4, 4, 4, 1), (1, 4, 4, 4)]).to(device())
    split = parallelize_module(layer, mesh(ranks), kronop.distributed.KSParallel())
    refused(lambda: split(spread(Shard(2), 3, 2, 20)), "(..., 16), got (3, 2, 20)")
    refused(lambda: split(local[None]), f"(..., {16 // ranks}), 16 features", "got (1, 20, 3)")
    for call in (kronop.gemkm, kronop.torch.gemkm):
        refused(lambda call=call: call(spread(Shard(0), 8, 16), factors), "kronop.distributed")


@case
def data_parallel_layers() -> None:
    """Rows over one dimension of the mesh by DistributedDataParallel, columns over the other."""
    grid = mesh(dist.get_world_size() // 2, 2)
    x, factors, _, gradient = whole(6, CUBE)
    _, gradients = wanted([x, *factors], gradient, 1.0, 0.0)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factors = torch.nn.ParameterList(item.clone() for item in factors)

        def forward(self, local: Any) -> Any:
            return kronop.distributed.gemkm(
                local, self.factors, group=grid.get_group("columns"), columns=True
            )

    layer = torch.nn.parallel.DistributedDataParallel(
        Layer().to(device()), process_group=grid.get_group("rows")
    )
    cut = lambda item: share(share(item, grid.get_group("rows"), 0), grid.get_group("columns"))  # noqa: E731
    layer(cut(x)).backward(cut(gradient).contiguous())
    for at, parameter in enumerate(layer.module.factors):
        close(parameter.grad * grid.size(0), gradients[1 + at], f"the gradient of factor {at}")


class _Net(torch.nn.Module):
    """A layer of Kronecker factors whose columns are spread, and one of sparse factors."""

    def __init__(self, factors: Sequence[Any], group: Any) -> None:
        super().__init__()
        self.factors = torch.nn.ParameterList(item.clone() for item in factors)
        self.group = group

    def forward(self, local: Any) -> Any:
        factors = list(self.factors)
        return kronop.distributed.gemkm(local, factors, group=self.group, columns=True).relu()


@case
def sharded_layers() -> None:
    """Parameters that FSDP shards over one dimension of the mesh, columns over the other."""
    grid = mesh(dist.get_world_size() // 2, 2)
    rows, columns_of = grid.get_group("rows"), grid.get_group("columns")
    x, factors, _, gradient = whole(6, CUBE)
    kept = [item.clone().requires_grad_() for item in factors]
    reference(x, kept).relu().backward(gradient)
    net = fully_shard(_Net(factors, columns_of).to(device()), mesh=grid["rows"])
    cut = lambda item: share(share(item, rows, 0), columns_of)  # noqa: E731
    net(cut(x)).backward(cut(gradient).contiguous())
    for at, parameter in enumerate(net.factors):
        mean = parameter.grad.full_tensor() * grid.size(0)
        close(mean, kept[at].grad, f"the gradient of factor {at}")


@case
def compiled_programs() -> None:
    """torch.compile breaks the graph at these products, and compiles what is around them."""
    group = dist.group.WORLD
    x, factors, _, gradient = whole(8, CUBE)
    run = torch.compile(_Net(factors, group).to(device()), backend="aot_eager")
    local, cut = own(x, group), share(gradient, group).contiguous()
    run(local).backward(cut)
    exact = x.detach().clone().requires_grad_()
    reference(exact, factors).relu().backward(gradient)
    close(local.grad, share(exact.grad, group), "the gradient of x")


@case
def kernels_that_are_compiled_once() -> None:
    """Ranks that need the same kernels at once wait for the one that compiles each."""
    x, factors, _, _ = whole(dist.get_world_size(), [(4, 4), (5, 7)])
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    compiled: list[str] = []

    def count(job: Any) -> Any:
        compiled.append(job.key)
        return compile_(job)

    compile_ = build._compile
    build.forget()
    try:
        with (
            knobs.using(cache_dir=Path(folder[0])),
            unittest.mock.patch.object(build, "_compile", count),
        ):
            kronop.distributed.gemkm(share(x, dist.group.WORLD), factors, columns=True)
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, compiled)
        keys = [key for some in every for key in some]
        assert keys, "nothing was compiled"
        assert len(keys) == len(set(keys)), f"{len(keys)} compilations of {len(set(keys))} kernels"
    finally:
        if dist.get_rank() == 0:
            shutil.rmtree(folder[0])


@case
def sparse_layers() -> None:
    """Factors that are split along other digits, with gradients; in place of a module's layer."""
    ranks = dist.get_world_size()
    line = mesh(ranks)
    for patterns in ([(8, 4, 2, 1), (1, 4, 4, 8)], [(1, 4, 4, 8), (2, 4, 4, 4), (4, 2, 2, 4)]):
        torch.manual_seed(5)
        layer = KSLinear(patterns, dtype=torch.float64).to(device())
        split = torch.nn.Sequential(KSLinear(patterns, layer.weights, dtype=torch.float64))
        split[0].bias.data.copy_(layer.bias.data)
        x = torch.randn(2, 3, layer.in_features, dtype=torch.float64, device=device())
        x.requires_grad_()
        goal = layer(x)
        gradient = torch.randn_like(goal)
        gradients = torch.autograd.grad(goal, [x, *layer.parameters()], gradient)
        parallelize_module(split, line, {"0": kronop.distributed.KSParallel()})
        local = own_share(x, 2)
        found = split(local)
        close(found, share(goal, dist.group.WORLD, 2), "the result")
        cut = share(gradient, dist.group.WORLD, 2).contiguous()
        mine = torch.autograd.grad(found, [local, *split.parameters()], cut)
        close(mine[0], share(gradients[0], dist.group.WORLD, 2), "the gradient of x")
        for at, (one, other) in enumerate(zip(mine[1:], gradients[1:], strict=True)):
            close(one.full_tensor(), other, f"gradient {at} of {patterns}")
        styled = kronop.distributed.KSParallel(
            input_layouts=Replicate(), output_layouts=Replicate()
        )
        again = KSLinear(patterns, layer.weights, False)
        again.requires_grad_(False)
        again = parallelize_module(again, line, styled)
        assert not any(item.requires_grad for item in again.parameters())
        close(again(x.detach()), (goal - layer.bias).detach(), "a replicated result")
        none = split(local[:, :0])
        assert none.shape == (2, 0, found.shape[2])
        copied = copy.deepcopy(split)
        with torch.no_grad():
            for item in copied.parameters():
                item.zero_()
            assert not float(copied(local).abs().max())
    style = kronop.distributed.KSParallel()
    refused(lambda: style._apply(KSLinear([(3, 2, 2, 3)]), line), f"{ranks} ranks")
    odd = KSLinear([(8, 3, 2, 1), (1, 2, 3, 8)])
    refused(lambda: style._apply(odd, line), "24 features", f"{ranks} ranks x 8")
    refused(lambda: style._apply(torch.nn.Linear(2, 2), line), "a KSLinear")
    refused(lambda: style._apply(KSLinear([(4, 2, 2, 1)], bs_last=True), line), "bs_last")


@case
def times() -> None:
    lines = list(bench.table(["4:4^3"], device(), 1))
    assert lines[0] == "| " + " | ".join(bench._HEAD) + " |"
    assert lines[2].startswith("| 4:4^3 | ")
    assert len({line.count("|") for line in lines}) == 1


def own_share(item: Any, dim: int) -> Any:
    return share(item.detach(), dist.group.WORLD, dim).clone().requires_grad_()


@case
def a_rank_that_ended() -> None:
    """The last case: the others are told. NCCL's own watchdog ends their processes instead, after
    the group's time-out."""
    if device() == "cuda":
        return
    x, factors, _, _ = whole(4, CUBE)
    local = share(x, dist.group.WORLD)
    run = functools.partial(kronop.distributed.gemkm, local, factors, columns=True)
    run()
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(0)
    refused(run, "every rank", "a rank ended")


def main(
    rank: int, ranks: int, store: str, queue: Any, backend: str, flags: tuple[str, ...] = ()
) -> None:
    """Runs all cases as one of the ranks, with these flags for kernels of x86; puts (rank, name,
    what went wrong) into the queue."""
    host_backend._FLAGS = flags or host_backend._FLAGS
    os.environ["KRONOP_QUIET"] = "1"
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )
    for name, run in CASES.items():
        try:
            run()
            trouble = ""
        except BaseException:
            trouble = traceback.format_exc(limit=-6)
        queue.put((rank, name, trouble))
    queue.close()
    queue.join_thread()
    os._exit(0)  # Without waiting for the rank that ended.
