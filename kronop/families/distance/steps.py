"""Steps of plans, as both targets make them: names of kernels, and what floors follow from."""

from __future__ import annotations

from typing import Any

from kronop.descriptions.datatype import float32
from kronop.emit.cuda.machine import PRODUCTS_OF_SPLIT
from kronop.emit.design import Design, members
from kronop.emit.floor import LeastWork
from kronop.emit.plan import Plan, Step
from kronop.families.distance.description import DistanceDescription, KernelMatmulDescription
from kronop.families.distance.floors import LeastOfGradient, LeastOfMatmul, LeastOfMatrix
from kronop.families.distance.gradient_description import DistanceGradientDescription
from kronop.target import Target


def step_of(
    what: DistanceDescription | KernelMatmulDescription,
    target: Target,
    name: str,
    design: Design,
    note: str,
    least: LeastWork,
) -> Step:
    """A step for pairs of points. Its kernel is `name_f32_two_dot_linear_arch`, with the kinds of
    the form's terms."""
    terms = "_".join(term.kind.name.lower() for term in what.kernel.terms)
    entry = f"{name}_{what.X1.element.short}_{terms}_{what.epilogue.name}_{target.arch}"
    return Step(entry=entry.replace("-", "_"), design=design, note=note, least=least)


def matrix_step(
    what: DistanceDescription, target: Target, design: Design, name: str = "distance", **how: Any
) -> Step:
    """The step that computes a kernel matrix; `how` are the members of its least work that depend
    on the design."""
    least = LeastOfMatrix(**_pairs(what), **how)
    return step_of(what, target, name, design, f"kernels of pairs of points: {design}", least)


def least_of_matmul(what: KernelMatmulDescription, **how: Any) -> LeastOfMatmul:
    """The least work of a kernel matrix times columns; `how` as in `matrix_step`."""
    return LeastOfMatmul(**_pairs(what), **how)


def fields_of(what: DistanceDescription | KernelMatmulDescription) -> dict[str, Any]:
    """The fields that follow from the description, of designs that store results."""
    return {
        **members(what, "math epilogue"),
        "source": what.X1.element,
        "output": what.Y.element,
        "form": what.kernel,
    }


def _pairs(what: DistanceDescription | KernelMatmulDescription) -> dict[str, Any]:
    return {
        "form": what.kernel,
        "element": what.X1.element.bytes,
        "sums": what.math.element_accumulator.name,
    }


def gradient_plan(
    what: DistanceGradientDescription,
    target: Target,
    design: Design,
    outputs: int,
    *,
    expanded: bool = False,
) -> Plan:
    """The plan of a gradient, of one step. Its kernel is
    `distance_gradient_f32_two_expanded_4_linear_arch`, with the power, whether differences are
    multiplied out, and the outputs at once."""
    power = what.power.name.lower() + "_expanded" * expanded
    kind = f"{what.A.element.short}_{power}_{outputs}_{what.epilogue.name}"
    step = Step(
        entry=f"distance_gradient_{kind}_{target.arch}".replace("-", "_"),
        design=design,
        note="sums of derivatives of powers of differences",
        least=LeastOfGradient(
            power=what.power,
            element=what.A.element.bytes,
            sums=what.math.element_accumulator.name,
            expanded=expanded,
            multiplied=float32.bytes if expanded else 0,
            products=PRODUCTS_OF_SPLIT,
        ),
    )
    return Plan(target=target, steps=(step,))
