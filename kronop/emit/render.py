"""Step -> Source: one translation unit that instantiates one template with named arguments.

The rendered text has declarations only; all control flow is in the headers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from kronop.artifacts import Language, Source
from kronop.descriptions.epilogue import Epilogue
from kronop.descriptions.visitor import VisitorEpilogue
from kronop.emit.design import Constant, Functor, Instantiation
from kronop.emit.plan import Plan, Step
from kronop.emit.render_visitor import visitor_functor
from kronop.errors import DescriptionError
from kronop.machine import Feature
from kronop.target import Target

_ROOT = Path(__file__).parent
_INCLUDE = {"cuda": _ROOT / "cuda" / "include", "x86": _ROOT / "x86" / "include"}
_LANGUAGE = {"cuda": Language.CUDA, "x86": Language.CXX}
_ENTRY = {
    "cuda": 'extern "C" __global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)'
    "{cluster}\n{entry}(const __grid_constant__ Parameters parameters) {{\n"
    "  {template}<Step>(parameters);\n}}\n",
    "x86": 'extern "C" int {entry}(const void* parameters, int alone) {{\n'
    "  return {template}<Step>(*static_cast<const Parameters*>(parameters), alone != 0);\n}}\n",
}
# Most bytes of kernel parameters on a GPU, and on one without the feature `grid_constants`.
_MOST_PARAMETERS, _FEW_PARAMETERS = 32764, 4096
# Most columns of a line; lines may be indented by two more.
_COLUMNS, _NO_BREAK = 98, "\N{NO-BREAK SPACE}"
# Host kernels are in an unnamed namespace: every shared object has a `Step`, and without internal
# linkage the loader would merge its tables and templates with those of other objects.
_LOCAL = {"cuda": ([], []), "x86": (["namespace {"], ["}  // namespace"])}


def render(plan: Plan) -> tuple[Source, ...]:
    """The sources of a plan, one per step."""
    backend = plan.target.backend
    return tuple(
        Source(
            entry=step.entry,
            text=_text(step, made, plan.target),
            language=_LANGUAGE[backend],
            include_directories=(*made.folders, str(_INCLUDE[backend])),
            options=made.options,
            cuda_headers=made.cuda_headers,
            cutlass_headers=made.cutlass_headers,
        )
        for step in plan.steps
        for made in [step.design.instantiation(plan.target)]
    )


def _text(step: Step, made: Instantiation, target: Target) -> str:
    design, backend = step.design, target.backend
    most = _MOST_PARAMETERS if target.has(Feature.grid_constants) else _FEW_PARAMETERS
    if backend == "cuda" and design.signature.size > most:
        raise DescriptionError(
            f"the parameters of {step.entry}",
            expected=f"at most {most} bytes on {target}",
            got=f"{design.signature.size} bytes, for its values and operands",
            hint="compute it in several operations, or let kernels share their values",
        )
    members = [f"using {name} = {value};" for name, value in made.types]
    members += [] if design.epilogue is None else _functor(design.epilogue)
    members += _declarations(made.constants)
    members += [line for functor in made.functors for line in _function(functor)]
    return "\n".join(
        [
            _wrapped(step.note, "// ", "// "),
            f'#include "{made.header}"',
            "",
            f"using Parameters = {made.parameters};",
            f"static_assert(sizeof(Parameters) == {design.signature.size});",
            "",
            *_LOCAL[backend][0],
            "struct Step {",
            textwrap.indent("\n".join(members), "  "),
            "};",
            *_LOCAL[backend][1],
            "",
            _ENTRY[backend].format(
                entry=step.entry,
                template=made.template,
                cluster=_cluster(made),
            ),
        ]
    )


def _cluster(made: Instantiation) -> str:
    if made.cluster_n > 1:
        return " __cluster_dims__(Step::kCluster, Step::kClusterN)"
    return " __cluster_dims__(Step::kCluster)" if made.cluster > 1 else ""


def _declarations(constants: Sequence[tuple[str, Constant]]) -> list[str]:
    """One declaration for each type, with all its constants."""
    found: dict[str, list[str]] = {}
    for name, value in constants:
        if isinstance(value, tuple):
            text = f"{name}[] = {{{', '.join(map(str, value))}}}"
            found.setdefault(_integer(*value), []).append(text)
        elif isinstance(value, bool):
            found.setdefault("bool", []).append(f"{name} = {str(value).lower()}")
        else:
            found.setdefault(_integer(value), []).append(f"{name} = {int(value)}")
    return [
        _wrapped(f"{', '.join(map(_kept, items))};", f"static constexpr {kind} ", " " * 4)
        for kind, items in found.items()
    ]


def _kept(item: str) -> str:
    """`item` with no-break spaces, unless it is longer than a line."""
    return item.replace(" ", _NO_BREAK) if len(item) <= _COLUMNS - 10 else item


def _integer(*values: int) -> str:
    """`int` if it can hold `values`, which keeps address arithmetic short; else `long long`."""
    fits = all(-(2**31) <= value < 2**31 for value in values)
    return "int" if fits else "long long"


def _functor(epilogue: Epilogue) -> list[str]:
    """The epilogue as a struct: its scalars, and one straight-line call operator."""
    if isinstance(epilogue, VisitorEpilogue):
        return [_wrapped(line, "", " " * 8) for line in visitor_functor(epilogue)]
    body = epilogue.expression.render("Compute").splitlines()
    return [
        f"struct Epilogue : kronop::Scaling<{epilogue.element_compute.cxx}> {{",
        *_further_scalars(epilogue.scalar_names),
        "  KRONOP_INLINE Compute operator()(Compute accumulator, Compute source, Compute bias)"
        " const {",
        *(_wrapped(line, " " * 4, " " * 8) for line in body),
        "  }",
        "};",
    ]


def _function(functor: Functor) -> list[str]:
    """A functor as a struct of one straight-line function."""
    body = functor.expression.render(functor.result).splitlines()
    return [
        f"struct {functor.name} {{",
        f"  KRONOP_INLINE static {functor.result} value({functor.parameters}) {{",
        *(_wrapped(line, " " * 4, " " * 8) for line in body),
        "  }",
        "};",
    ]


def _further_scalars(names: Sequence[str]) -> list[str]:
    """Members for the scalars after alpha and beta, and the constructor."""
    if len(names) == 2:
        return ["  using Scaling::Scaling;"]
    made = [f"{name}(Compute(scalars[{at}]))" for at, name in enumerate(names[2:], 2)]
    return [
        f"  Compute {', '.join(names[2:])};",
        "  template <class Scalar>",
        "  KRONOP_INLINE explicit Epilogue(const Scalar* scalars)",
        f"      : {', '.join(['Scaling(scalars)', *made])} {{}}",
    ]


def _wrapped(text: str, first: str, further: str) -> str:
    filled = textwrap.fill(
        text,
        _COLUMNS,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.replace(_NO_BREAK, " ")
