"""The one generator of cases, for CPUs and GPUs alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import kronop
from kronop.descriptions.activation import ACTIVATION_NAMES
from kronop.descriptions.datatype import DataType, result_type
from kronop.machine import Feature
from kronop.target import Target
from tests import support
from tests.fuzz import sizes
from tests.fuzz.case import FAMILIES, Call, Case, Operand, Problem
from tests.fuzz.draw import Draw
from tests.fuzz.layouts import kind_of_layout, lay

_FLOATS = tuple(item for item in support.ELEMENTS if item.kind == "float")
_NOT_CHAINED = (kronop.int8,)
_WEIGHTS = {"kron": 8, "ksparse": 7, "chain": 4, "gradient": 5}
_HOST_FAMILIES = {"kron": 8, "ksparse": 7, "chain": 4, "gradient": 2}
# The share of calls with tidy tensors: contiguous and aligned, as the fastest kernels need them.
_TIDY = 0.45
# The share of problems from the lists of `sizes` that reach styles which hardly any others reach.
_RARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What cases are drawn from.

    Attributes:
        targets: the targets to run or to plan for; the last one is this machine's own.
        only: families to draw from.
        has_torch: whether to make calls on torch tensors and gradients by autograd.
        problems: the number of different problems, so that cases share kernels; None for a new
            problem in every case.
    """

    targets: tuple[str, ...]
    only: tuple[str, ...] = FAMILIES
    has_torch: bool = True
    problems: int | None = None

    @property
    def on_gpu(self) -> bool:
        return self.targets[-1].startswith("sm_")

    @property
    def limits(self) -> sizes.Limits:
        return sizes.GPU if self.on_gpu else sizes.CPU


def make(name: str, settings: Settings) -> Case:
    """The case with the name "seed.process.index"."""
    seed, process, index = name.split(".")
    of_problem = name
    if settings.problems is not None:
        of_problem = f"{seed}.{process}.shared {int(index) % settings.problems}"
    problem = _problem(Draw(of_problem), settings)
    draw = Draw(name)
    count = 2 if settings.problems is not None else draw.whole(1, 3)
    calls = tuple(_call(draw, problem, settings) for _ in range(count))
    return Case(name=name, problem=problem, calls=calls)


def _problem(draw: Draw, settings: Settings) -> Problem:
    weights = _WEIGHTS if settings.on_gpu else _HOST_FAMILIES
    known = [item for item in settings.only if item != "gradient" or _has_gradient(settings)]
    family = draw.weighed({item: weights[item] for item in known})
    target = draw.pick(settings.targets)
    make_one = {"kron": _kron, "ksparse": _ksparse, "chain": _chain, "gradient": _gradient}[family]
    return replace(make_one(draw, target, settings), activation=draw.pick(ACTIVATION_NAMES))


def _has_gradient(settings: Settings) -> bool:
    return settings.on_gpu or settings.has_torch


def _kron(draw: Draw, target: str, settings: Settings) -> Problem:
    return Problem(
        family="kron",
        target=target,
        element=draw.pick((*support.ELEMENTS, *_FLOATS)),
        shapes=sizes.factors(draw, settings.limits),
        of_kron=True,
        left=draw.chance(0.4),
    )


def _ksparse(draw: Draw, target: str, settings: Settings) -> Problem:
    if settings.on_gpu and draw.chance(_RARE):
        element = draw.pick((kronop.float16, kronop.bfloat16, kronop.float32))
        shapes = (draw.pick((*sizes.HALVED, *sizes.PARTIAL)),)
        return Problem(family="ksparse", target=target, element=element, shapes=shapes)
    machine = Target.parse(target)
    narrow = support.FLOAT8 if machine.gpu is None or machine.has(Feature.float8) else ()
    return Problem(
        family="ksparse",
        target=target,
        element=draw.pick((*support.ELEMENTS, *_FLOATS, *narrow)),
        shapes=(sizes.pattern(draw, settings.limits),),
        batch_last=draw.chance(0.4),
    )


def _chain(draw: Draw, target: str, settings: Settings) -> Problem:
    elements = [item for item in support.ELEMENTS if item not in _NOT_CHAINED]
    return Problem(
        family="chain",
        target=target,
        element=draw.pick((*elements, *_FLOATS)),
        shapes=sizes.chain(draw, settings.limits),
        batch_last=draw.chance(0.4),
    )


def _gradient(draw: Draw, target: str, settings: Settings) -> Problem:
    element = draw.pick((*_FLOATS, kronop.float16, kronop.bfloat16))
    backward = settings.has_torch and (not settings.on_gpu or draw.chance(0.4))
    if backward:
        of_kron = draw.chance(0.6)
        limits = replace(settings.limits, weights=settings.limits.weights // 4)
        product = (_kron if of_kron else draw.pick((_ksparse, _chain)))(draw, target, settings)
        shapes = product.shapes if of_kron else sizes.chain(draw, limits)[: draw.whole(1, 3)]
        return replace(product, family="gradient", element=element, shapes=shapes, backward=True)
    if draw.chance(_RARE):
        return Problem(
            family="gradient",
            target=target,
            element=draw.pick((kronop.float16, kronop.bfloat16)),
            shapes=(draw.pick(sizes.IN_TEAMS),),
            batch_last=draw.chance(0.7),
        )
    batch_last, tied = draw.chance(0.4), draw.chance(0.4)
    of = Problem(
        family="gradient",
        target=target,
        element=element,
        shapes=(sizes.pattern(draw, settings.limits),),
        batch_last=batch_last,
        tied=tied,
        products=draw.pick((None, None, None, 1, 3)),
    )
    if not tied or draw.chance(0.6):
        return of
    shapes = tuple((draw.whole(1, 9), draw.whole(1, 9)) for _ in range(draw.whole(2, 3)))
    c, b = (math.prod(item) for item in zip(*shapes, strict=True))
    a, _, _, d = of.shapes[0]
    pattern = (a, b, c, min(d, 64))
    return replace(of, shapes=(pattern,), factors=shapes, products=None)


def _call(draw: Draw, problem: Problem, settings: Settings) -> Call:
    how, framework = _way(draw, problem, settings)
    rare = problem.shapes[0] in (*sizes.HALVED, *sizes.PARTIAL, *sizes.IN_TEAMS)
    tidy = draw.chance(0.9 if rare else _TIDY)
    call = _operands(draw, problem, settings, how, framework, tidy)
    return _with_result(draw, problem, call, tidy)


def _way(draw: Draw, problem: Problem, settings: Settings) -> tuple[str, str]:
    """(how to call, the framework of the tensors)."""
    if problem.backward:
        return draw.weighed({"line": 5, **({"stream": 2, "graph": 2} if problem.on_gpu else {})}), (
            "torch"
        )
    if problem.on_gpu:
        ways = {"line": 8, "bound": 3, "stream": 3, "graph": 3, "described": 1}
        how = draw.weighed(ways)
        return how, "numpy" if how == "described" else "torch"
    # Operations with alignment 1 need the fewest kernels, so they are drawn often if cases share
    # problems.
    ways = {"described": 4 if settings.problems is None else 30, "line": 5, "bound": 2}
    how = draw.weighed(ways)
    return how, "torch" if settings.has_torch and draw.chance(0.3) else "numpy"


def _operands(
    draw: Draw, problem: Problem, settings: Settings, how: str, framework: str, tidy: bool
) -> Call:
    """A call with its inputs; `_with_result` adds the result's tensor and Z."""
    reversible = framework == "numpy"

    def layout(shape: Sequence[int], repeatable: Sequence[int] = (), kind: str = "") -> Operand:
        options = {"kind": kind, "tidy": tidy, "reversible": reversible}
        return lay(draw, shape, repeatable=repeatable, **options)

    limits = sizes.STAGED if settings.on_gpu and framework == "numpy" else settings.limits
    lead, part_leads = _leads(draw, problem, limits, tidy)
    x = _x_shape(problem, lead)
    batch = range(len(x) - 2) if problem.of_kron else ()
    kind = kind_of_layout(draw, tidy)
    x_operand = layout(x, [*batch] if draw.chance(0.7) else [*range(len(x))], kind)
    # Gradients of weights have special kernels if X and G have the same layout.
    g_kind = kind if draw.chance(0.6) else ""
    parts = [
        layout((*own, *shape), range(len(own)))
        for own, shape in zip(part_leads, _part_shapes(problem), strict=True)
    ]
    g = layout(_shape(problem, lead, problem.ends[1]), kind=g_kind)
    call = Call(
        how=how,
        framework=framework,
        x=x_operand,
        parts=tuple(parts),
        output=_output(draw, problem),
        alpha=1,
        beta=0,
        g=g if problem.is_weight_gradient else None,
    )
    return _with_more(draw, problem, call, tidy)


def _with_more(draw: Draw, problem: Problem, call: Call, tidy: bool) -> Call:
    """The call with alpha, and with a bias and an activation if the problem allows them."""
    floats = problem.element.kind == "float"
    has_bias = not problem.of_kron and not problem.is_weight_gradient and draw.chance(0.4)
    acts = floats and not problem.of_kron and problem.family != "gradient" and draw.chance(0.35)
    shape, reversible = (problem.ends[1],), call.framework == "numpy"
    return replace(
        call,
        alpha=draw.pick((1.0, 1.0, 0.5, -1.5) if floats else (1, 1, 2, -3)),
        bias=lay(draw, shape, tidy=tidy, reversible=reversible) if has_bias else None,
        activation=problem.activation if acts else None,
        wide=not floats and draw.chance(0.4),
    )


def _output(draw: Draw, problem: Problem) -> DataType:
    """The element type of the result; one that is not the default is requested through `out`."""
    element, others = problem.element, ()
    if problem.is_weight_gradient:
        others = (element, kronop.float32)
    elif problem.family != "gradient" and element == kronop.int8:
        others = (kronop.int8,)
    elif element in support.FLOAT8:
        others = (kronop.float16, kronop.float32)
    return draw.pick(others) if others and draw.chance(0.4) else result_type(element)


def _leads(
    draw: Draw, problem: Problem, limits: sizes.Limits, tidy: bool
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """(the dimensions of X other than the features, the batch dimensions of each factor or
    weight)."""
    ends = problem.ends
    if problem.of_kron:
        features = math.prod(max(shape) for shape in problem.shapes)
        each = features * sum(max(shape) for shape in problem.shapes)
    else:
        features = max(*ends, *(a * max(b, c) * d for a, b, c, d in problem.shapes))
        each = sum(math.prod(pattern) for pattern in problem.shapes)
    count = sizes.rows(draw, features, each, limits, tidy)
    none: list[tuple[int, ...]] = [() for _ in _part_shapes(problem)]
    if problem.is_weight_gradient:
        return (count,), none
    if not problem.of_kron:
        return (() if count == 1 and draw.chance(0.5) else sizes.split_rows(draw, count, 3)), none
    if count == 1 and draw.chance(0.3):
        return (), none
    if tidy or draw.chance(0.6):
        return (count,), none
    batch = [draw.pick((1, 2, 3)) for _ in range(draw.whole(1, 3))]
    count = max(1, count // math.prod(batch))
    leads = [_part_of(draw, batch) if draw.chance(0.4) else () for _ in problem.shapes]
    return (*(size if draw.chance(0.7) else 1 for size in batch), count), leads


def _part_of(draw: Draw, batch: Sequence[int]) -> tuple[int, ...]:
    """Random dimensions that broadcast to `batch`."""
    kept = batch[draw.whole(0, len(batch)) :]
    return tuple(size if draw.chance(0.7) else 1 for size in kept)


def _part_shapes(problem: Problem) -> tuple[tuple[int, ...], ...]:
    return problem.factors if problem.is_weight_gradient else problem.shapes


def _x_shape(problem: Problem, lead: tuple[int, ...]) -> tuple[int, ...]:
    return _shape(problem, lead, problem.ends[0])


def _shape(problem: Problem, lead: tuple[int, ...], features: int) -> tuple[int, ...]:
    if problem.is_weight_gradient:
        front = () if problem.products is None else (problem.products,)
        return (*front, features, *lead) if problem.batch_last else (*front, *lead, features)
    if problem.left and lead:
        return (*lead[:-1], features, lead[-1])
    return (features, *lead) if problem.batch_last else (*lead, features)


def _lead(problem: Problem, x: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of X other than its features."""
    if problem.is_weight_gradient:
        return (x[-1 if problem.batch_last else -2],)
    if problem.left and len(x) > 1:
        return (*x[:-2], x[-1])
    return x[1:] if problem.batch_last else x[:-1]


def _y_shape(problem: Problem, call: Call) -> tuple[int, ...]:
    if not problem.is_weight_gradient:
        lead = _lead(problem, call.x.shape)
        if problem.of_kron and len(lead) > 0:
            batches = [item.shape[:-2] for item in call.parts]
            lead = (*np.broadcast_shapes(lead[:-1], *batches), lead[-1])
        return _shape(problem, lead, problem.ends[1])
    _, b, c, _ = problem.shapes[0]
    if problem.factors:
        return (sum(rows * columns for rows, columns in problem.factors),)
    front = () if problem.products is None else (problem.products,)
    return (*front, c, b) if problem.tied else (*front, *problem.shapes[0])


def _with_result(draw: Draw, problem: Problem, call: Call, tidy: bool) -> Call:
    """The call with the result's tensor and Z, each of which may be left out."""
    shape = _y_shape(problem, call)
    options = {"tidy": tidy, "reversible": call.framework == "numpy"}
    if problem.backward:
        source = lay(draw, shape, **options) if draw.chance(0.4) else None
        beta = draw.pick((1.0, -1.5)) if source else 0.0
        return replace(call, g=lay(draw, shape, **options), z=source, beta=beta)
    must = call.output != result_type(problem.element)
    out = lay(draw, shape, **options) if must or draw.chance(0.6) else None
    if not draw.chance(0.45):
        return replace(call, out=out)
    beta = draw.pick((1.0, 0.5, -1.5) if problem.element.kind == "float" else (1, -2))
    if out is not None and draw.chance(0.4):
        return replace(call, out=out, z=out, in_place=True, beta=beta)
    return replace(call, out=out, z=lay(draw, shape, **options), beta=beta)
